//! User namespaces and profiles.

use super::*;

fn own_users(mut case: Case) -> Case {
    let range = IdRange {
        inside: 0,
        outside: 65_536,
        length: 65_536,
    };
    case.namespaces.user = Some(UserNamespacePath {
        path: "/u/ns/user".to_owned(),
        ids: UserIds {
            users: range,
            groups: range,
        },
    });
    case.security(|context| {
        let line = proto::cri::IdMapping {
            container_id: 0,
            host_id: 65_536,
            length: 65_536,
        };
        context
            .namespace_options
            .get_or_insert_default()
            .userns_options = Some(proto::cri::UserNamespace {
            mode: proto::cri::NamespaceMode::Pod.into(),
            uids: vec![line],
            gids: vec![line],
        });
    })
}

#[test]
fn a_container_joins_the_user_namespace_of_its_sandbox_and_no_other() {
    let mut case = own_users(case().mount(at("/m"), HostPropagation::Private));
    case.sources[0].kept = vec!["nodev"];
    let made = case.make().unwrap();
    let user = json!({ "type": "user", "path": "/u/ns/user" });
    let namespaces = made["linux"]["namespaces"].as_array().unwrap();
    assert!(namespaces.contains(&user), "{namespaces:?}");
    let ids = json!([{ "containerID": 0, "hostID": 65_536, "size": 65_536 }]);
    assert_eq!(made["linux"]["uidMappings"], ids);
    assert_eq!(made["linux"]["gidMappings"], ids);
    let mounts = made["mounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["destination"] == "/m");
    let options = json!(["rbind", "rprivate", "rw", "nodev"]);
    assert_eq!(mount.unwrap()["options"], options);

    let mut elsewhere = own_users(self::case());
    elsewhere.namespaces.user = None;
    let mut both_ways = at("/m");
    both_ways.set_propagation(MountPropagation::PropagationBidirectional);
    let mut nothing_said = own_users(self::case());
    nothing_said.config.linux = None;
    for (case, word) in [
        (elsewhere, "userns_options"),
        (nothing_said, "userns_options"),
        (
            own_users(self::case().mount(both_ways, HostPropagation::Shared)),
            "propagation",
        ),
    ] {
        let refusal = case.make().unwrap_err().to_string();
        assert!(refusal.contains(word), "{refusal}");
    }
}

fn profile(kind: ProfileType, path: &str) -> Option<SecurityProfile> {
    Some(SecurityProfile {
        profile_type: kind.into(),
        localhost_ref: path.to_owned(),
    })
}

#[test]
fn the_default_seccomp_profile_follows_the_capabilities() {
    let calls = |case: Case| {
        let case = case.security(|context| {
            context.seccomp = profile(ProfileType::RuntimeDefault, "");
        });
        let spec = case.make().unwrap();
        let seccomp = spec["linux"]["seccomp"].clone();
        assert_eq!(seccomp["defaultAction"], "SCMP_ACT_ERRNO");
        seccomp["syscalls"].as_array().unwrap().clone()
    };
    let allowed = |calls: &[Value], name: &str| {
        let names = calls[0]["names"].as_array().unwrap();
        names.contains(&json!(name))
    };
    let plain = calls(case());
    assert!(allowed(&plain, "openat") && allowed(&plain, "arch_prctl"));
    assert!(!allowed(&plain, "mount") && !allowed(&plain, "reboot"));
    assert!(plain.iter().any(|rule| rule["names"] == json!(["clone3"])));
    let admin = calls(case().security(|context| {
        context.capabilities = Some(Capability {
            add_capabilities: words(&["SYS_ADMIN"]),
            ..Default::default()
        });
    }));
    assert!(allowed(&admin, "mount") && !allowed(&admin, "reboot"));
    assert!(!admin.iter().any(|rule| rule["names"] == json!(["clone3"])));
}

#[test]
fn a_seccomp_profile_of_the_node_is_passed_on_and_unconfined_is_none() {
    let section = |kind, text: Option<&str>| {
        let mut case = case().security(|context| context.seccomp = profile(kind, "/p.json"));
        case.profile = text.map(str::to_owned);
        case.make().map(|spec| spec["linux"]["seccomp"].clone())
    };
    let own = section(
        ProfileType::Localhost,
        Some(r#"{"defaultAction":"SCMP_ACT_LOG"}"#),
    );
    assert_eq!(own.unwrap()["defaultAction"], "SCMP_ACT_LOG");
    for wrong in [None, Some("{}"), Some("x")] {
        assert!(section(ProfileType::Localhost, wrong).is_err());
    }
    assert_eq!(section(ProfileType::Unconfined, None), Ok(Value::Null));
    let mut blind = case().security(|context| {
        context.seccomp = profile(ProfileType::RuntimeDefault, "");
    });
    blind.host.seccomp = false;
    assert!(blind.make().is_err());
}

#[test]
fn a_container_has_the_apparmor_profile_that_it_names_or_the_runtimes() {
    let set = |asked: Option<ProfileType>, apparmor, apparmor_default| {
        let mut case = case().security(|context| {
            context.apparmor = asked.and_then(|kind| profile(kind, "own"));
        });
        (case.host.apparmor, case.host.apparmor_default) = (apparmor, apparmor_default);
        case.make()
            .map(|spec| spec["process"]["apparmorProfile"].clone())
    };
    let ours = Some("oxlet-default");
    for (asked, expected) in [
        (Some(ProfileType::Localhost), json!("own")),
        (Some(ProfileType::RuntimeDefault), json!("oxlet-default")),
        (None, json!("oxlet-default")),
        (Some(ProfileType::Unconfined), Value::Null),
    ] {
        assert_eq!(set(asked, true, ours), Ok(expected), "{asked:?}");
    }
    // AppArmor without its parser, and no AppArmor.
    for asked in [None, Some(ProfileType::RuntimeDefault)] {
        assert_eq!(set(asked, true, None), Ok(Value::Null));
        assert_eq!(set(asked, false, None), Ok(Value::Null));
    }
    assert!(set(Some(ProfileType::Localhost), false, None).is_err());
    let mut privileged = case().privileged();
    (privileged.host.apparmor, privileged.host.apparmor_default) = (true, ours);
    assert_eq!(
        privileged.make().unwrap()["process"]["apparmorProfile"],
        Value::Null
    );
}
