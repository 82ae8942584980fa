//! Who a container's process is.

use proto::cri::*;
use serde_json::json;
use tar::EntryType;

use crate::images::{entry, layer_with, save_with, spec};
use crate::rig::Rig;

/// An image whose files give the names of numbers to others, and whose `USER` is this.
fn archive(rig: &Rig, name: &str, user: &str) -> std::path::PathBuf {
    let layer = layer_with(|tar| {
        let passwd = b"root:x:0:0::/:/bin/sh\n1000:x:0:0::/:/bin/sh\nweb:x:33:34::/:\n";
        let group = b"root:x:0:\n2000:x:0:\nextra:x:50:web\n";
        entry(tar, "etc/passwd", EntryType::Regular, (0o644, passwd));
        entry(tar, "etc/group", EntryType::Regular, (0o644, group));
    });
    let path = rig.home.path().join(format!("user-{user}.tar"));
    save_with(&path, name, (&layer, json!({ "User": user })));
    path
}

#[tokio::test]
async fn a_number_is_never_the_name_of_somebody_else() {
    // runc 1.1 looks the numbers of groups up as names once more, in the image's group file.
    let mut rig = Rig::start_own(json!({})).await;
    let users = ["", "1000", "1000:2000", "web"];
    let name = |user: &str| format!("localhost/u{}x:1", user.replace(':', "-"));
    let archives = users.map(|user| archive(&rig, &name(user), user));
    rig.reconfigure(json!({ "import": archives })).await;
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    for (number, (image, uid, gid, expected)) in [
        ("", Some(1000), None, "1000 0 Groups: 0"),
        ("web", Some(1000), Some(2000), "1000 2000 Groups: 2000"),
        ("web", Some(33), None, "33 34 Groups: 34 50"),
        ("1000", None, None, "1000 0 Groups: 0"),
        ("1000:2000", None, None, "1000 2000 Groups: 2000"),
        ("web", None, None, "33 34 Groups: 34 50"),
    ]
    .into_iter()
    .enumerate()
    {
        // busybox's id -G looks the user up once more.
        let script = "echo $(id -u) $(id -g) $(grep Groups: /proc/self/status)";
        let mut config = rig.container(&format!("c{number}"), &format!("{script}; sleep 3600"));
        config.image = spec(&name(image));
        let linux = config.linux.get_or_insert_default();
        let context = linux.security_context.get_or_insert_default();
        context.run_as_user = uid.map(|value| Int64Value { value });
        context.run_as_group = gid.map(|value| Int64Value { value });
        let container = rig.run((&id, &pod), config).await;
        let (text, code) = rig.exec(&container, script).await;
        assert_eq!((text.trim(), code), (expected, 0), "{image} {uid:?}");
        let log = || rig.log("a", &format!("c{number}"));
        crate::rig::wait_until("the container's own words", || log() == [expected]).await;
    }
    rig.remove_pod(&id).await;
    rig.assert_nothing_left().await;
}
