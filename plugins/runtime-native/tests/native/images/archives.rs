//! Archives of images, in and out, by the plugin's own service; real containerd is the other reader and writer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use futures_util::stream;
use proto::cri::*;
use proto::images::images_client::ImagesClient;
use proto::images::{
    ExportRequest, ImportOptions, ImportRequest, ImportedImage, export_response, import_request,
};
use serde_json::json;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::images::spec;
use crate::rig::{IMAGE, Rig, wait_until};

fn client(rig: &Rig) -> ImagesClient<Channel> {
    ImagesClient::new(rig.channel())
}

async fn export(rig: &Rig, images: &[&str]) -> Result<Vec<u8>, Status> {
    let images = images.iter().map(|&image| image.to_owned()).collect();
    let mut answer = client(rig)
        .export(ExportRequest { images })
        .await?
        .into_inner();
    let mut archive = Vec::new();
    while let Some(message) = answer.message().await? {
        match message.part.unwrap() {
            export_response::Part::Data(data) => archive.extend(data),
            export_response::Part::Summary(summary) => {
                assert_eq!(summary.bytes, archive.len() as u64);
                assert!(answer.message().await?.is_none(), "the summary is the last");
                return Ok(archive);
            }
        }
    }
    panic!("the archive has no end");
}

fn message(part: import_request::Part) -> ImportRequest {
    ImportRequest { part: Some(part) }
}

async fn import(rig: &Rig, archive: &[u8], name: &str) -> Result<Vec<ImportedImage>, Status> {
    let options = ImportOptions {
        origin: "the test's archive".to_owned(),
        name: name.to_owned(),
        platform: String::new(),
    };
    let mut messages = vec![message(import_request::Part::Options(options))];
    let pieces = archive.chunks(100_000).map(<[u8]>::to_vec);
    messages.extend(pieces.map(|piece| message(import_request::Part::Data(piece))));
    let answer = client(rig).import(stream::iter(messages)).await?;
    Ok(answer.into_inner().images)
}

async fn image(rig: &Rig, name: &str) -> Option<Image> {
    let request = ImageStatusRequest {
        image: spec(name),
        verbose: false,
    };
    let answer = rig.images().image_status(request).await.unwrap();
    answer.into_inner().image
}

/// Runs a container of an image to its end; returns its log.
async fn log_of(rig: &Rig, name: &str, script: &str) -> Vec<String> {
    let pod = rig.pod("a");
    let id = rig.run_pod(&pod).await;
    let mut config = rig.container("main", script);
    config.image = spec(name);
    let container = rig.run((&id, &pod), config).await;
    assert_eq!(rig.ended(&container).await.exit_code, 0);
    rig.remove_pod(&id).await;
    rig.log("a", "main")
}

#[tokio::test]
async fn an_image_goes_by_an_archive_to_a_node_without_a_registry_and_runs_there() {
    let first = Rig::start().await;
    let archive = export(&first, &[IMAGE]).await.unwrap();
    let second = Rig::start_with(json!({ "import": [] })).await;
    assert_eq!(image(&second, IMAGE).await, None);
    let imported = import(&second, &archive, "").await.unwrap();
    assert_eq!(imported[0].tags, [IMAGE]);
    let id = image(&first, IMAGE).await.unwrap().id;
    assert_eq!(imported[0].id, id);
    assert_eq!(image(&second, &id).await.unwrap().repo_tags, [IMAGE]);
    assert_eq!(log_of(&second, IMAGE, "echo there").await, ["there"]);
    let renamed = import(&second, &archive, "localhost/other:2")
        .await
        .unwrap();
    assert_eq!(renamed[0].tags, [IMAGE, "localhost/other:2"]);
    second.assert_nothing_left().await;
}

#[tokio::test]
async fn what_is_no_archive_or_not_there_is_refused_and_leaves_no_image() {
    let rig = Rig::start().await;
    let absent = export(&rig, &[IMAGE, "localhost/absent:1"])
        .await
        .unwrap_err();
    assert_eq!(absent.code(), Code::NotFound, "{absent:?}");
    assert!(absent.message().contains("absent"), "{absent:?}");
    let none = export(&rig, &[]).await.unwrap_err();
    assert_eq!(none.code(), Code::InvalidArgument);
    let whole = export(&rig, &[IMAGE]).await.unwrap();
    let request = RemoveImageRequest { image: spec(IMAGE) };
    rig.images().remove_image(request).await.unwrap();
    let mut changed = whole.clone();
    let place = changed
        .windows(7)
        .position(|text| text == b"BusyBox")
        .unwrap();
    changed[place] = b'b';
    for (archive, words) in [
        (&b"no archive at all"[..], "the test's archive"),
        (&whole[..whole.len() / 2], "the test's archive"),
        (&changed, "digest"),
    ] {
        let refused = import(&rig, archive, "").await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().contains(words), "{refused:?}");
    }
    let bare = stream::iter([message(import_request::Part::Data(whole.clone()))]);
    let refused = client(&rig).import(bare).await.unwrap_err();
    assert!(refused.message().contains("no options"), "{refused:?}");
    assert_eq!(image(&rig, IMAGE).await, None);
    import(&rig, &whole, "").await.unwrap();
    assert!(image(&rig, IMAGE).await.is_some());
}

#[tokio::test]
async fn a_third_archive_waits_for_its_caller_to_come_again() {
    let rig = Rig::start().await;
    // Their callers send nothing further: both are on their way.
    let options = message(import_request::Part::Options(ImportOptions::default()));
    let hanging = || {
        let (first, mut client) = (options.clone(), client(&rig));
        tokio::spawn(async move {
            // One that comes while the test's own export has the place comes again.
            loop {
                let first = stream::iter([first.clone()]);
                let messages = futures_util::StreamExt::chain(first, stream::pending());
                drop(client.import(messages).await);
            }
        })
    };
    let both = [hanging(), hanging()];
    let refused = loop {
        match export(&rig, &[IMAGE]).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    // Who goes away gives its place back.
    for one in both {
        one.abort();
    }
    let freed = async {
        while export(&rig, &[IMAGE]).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    let within = std::time::Duration::from_secs(30);
    tokio::time::timeout(within, freed)
        .await
        .expect("a place is free again");
}

/// A containerd with a folder of its own and nothing of CRI.
struct Containerd {
    home: tempfile::TempDir,
    process: Child,
}

impl Containerd {
    async fn start() -> Containerd {
        let home = tempfile::Builder::new()
            .prefix("ctrd-")
            .tempdir_in("/tmp")
            .unwrap();
        let path = |name: &str| home.path().join(name);
        let config = format!(
            "version = 2\nroot = {:?}\nstate = {:?}\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
             [grpc]\naddress = {:?}\n",
            path("root"),
            path("state"),
            path("s")
        );
        fs::write(path("config.toml"), config).unwrap();
        let log = fs::File::create(path("log")).unwrap();
        let process = Command::new("containerd")
            .arg("--config")
            .arg(path("config.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("apt's containerd is in the PATH");
        let containerd = Containerd { home, process };
        let socket = containerd.path("s");
        let answers = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        wait_until("containerd's socket", answers).await;
        containerd
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn ctr(&self, arguments: &[&str], file: &Path) -> String {
        let mut ctr = Command::new("ctr");
        ctr.arg("--address")
            .arg(self.path("s"))
            .args(["--timeout", "30s"]);
        for argument in arguments {
            match *argument {
                "FILE" => ctr.arg(file),
                argument => ctr.arg(argument),
            };
        }
        let done = ctr.output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[tokio::test]
async fn containerd_imports_what_is_exported_and_what_it_exports_is_imported() {
    let rig = Rig::start().await;
    let containerd = Containerd::start().await;
    let file = containerd.path("archive.tar");
    fs::write(&file, export(&rig, &[IMAGE]).await.unwrap()).unwrap();
    // Unpacked too: the layers' digests are looked at.
    containerd.ctr(
        &["images", "import", "--snapshotter", "native", "FILE"],
        &file,
    );
    let checked = containerd.ctr(&["images", "check", "--snapshotter", "native"], &file);
    let line = checked
        .lines()
        .find(|line| line.starts_with(IMAGE))
        .unwrap();
    assert!(
        line.contains("complete") && line.ends_with("true"),
        "{line}"
    );
    let back = containerd.path("back.tar");
    containerd.ctr(&["images", "export", "FILE", IMAGE], &back);
    let id = image(&rig, IMAGE).await.unwrap().id;
    let other = Rig::start_with(json!({ "import": [] })).await;
    let imported = import(&other, &fs::read(&back).unwrap(), "").await.unwrap();
    assert_eq!(
        (&imported[0].id, imported[0].tags.as_slice()),
        (&id, [IMAGE.to_owned()].as_slice())
    );
    assert_eq!(log_of(&other, IMAGE, "echo back").await, ["back"]);
    containerd.ctr(&["images", "rm", "--sync", IMAGE], &file);
}
