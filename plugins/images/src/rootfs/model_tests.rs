//! Images with links in all directions, against a model that applies one layer after the other, as containerd does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::tests::Mounted;
use crate::testing::Tar;
use crate::{ArchiveError, LayerError};

/// What an entry of a layer is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Folder,
    File,
    Link(&'static str),
    /// The name is removed.
    Whiteout,
    /// All that the layers below have in the folder is removed.
    Opaque,
}

/// Entries by path; each layer is written in this order.
type Layer = BTreeMap<String, Node>;

/// A tree by paths, each of which has its folder.
#[derive(Clone, Debug, Default)]
struct Model(
    BTreeMap<String, Node>,
    /// Links and folders that the current layer has led through.
    Vec<String>,
);

/// A path that leads through a file, or in a circle, or a layer that contradicts itself by saying one thing of a place
/// and then another: who unpacks may refuse it, or take either.
struct Refused;

impl Model {
    /// Follows a path in the tree and makes what is missing; returns where it leads.
    fn folder(&mut self, path: &str, made: &mut Vec<String>) -> Result<String, Refused> {
        let steps = |path: &str| path.split('/').rev().map(str::to_owned).collect::<Vec<_>>();
        let (mut at, mut rest, mut links) = (String::new(), steps(path), 0);
        while let Some(name) = rest.pop() {
            match name.as_str() {
                "" | "." => continue,
                ".." => {
                    at = at
                        .rsplit_once('/')
                        .map_or("", |(parent, _)| parent)
                        .to_owned();
                    continue;
                }
                _ => {}
            }
            let next = join(&at, &name);
            match self.0.get(&next) {
                Some(Node::Folder) => {
                    self.1.push(next.clone());
                    at = next;
                }
                Some(Node::Link(target)) => {
                    links += 1;
                    self.1.push(next);
                    if links > 40 {
                        return Err(Refused);
                    }
                    if target.starts_with('/') {
                        at.clear();
                    }
                    rest.extend(steps(target));
                }
                Some(_) => return Err(Refused),
                None => {
                    self.0.insert(next.clone(), Node::Folder);
                    made.push(next.clone());
                    at = next;
                }
            }
        }
        Ok(at)
    }

    fn remove(&mut self, path: &str) {
        let below = format!("{path}/");
        self.0
            .retain(|other, _| other != path && !other.starts_with(&below));
    }

    fn apply(&mut self, layer: &Layer) -> Result<(), Refused> {
        let mut made = Vec::new();
        self.1.clear();
        for (path, node) in layer {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            let folder = self.folder(parent, &mut made)?;
            let place = join(&folder, name);
            match node {
                Node::Whiteout => {
                    let hidden = join(&folder, name.strip_prefix(".wh.").unwrap());
                    if made.contains(&hidden) || self.1.contains(&hidden) {
                        return Err(Refused);
                    }
                    self.remove(&hidden);
                }
                Node::Opaque => {
                    let below = if folder.is_empty() {
                        folder
                    } else {
                        format!("{folder}/")
                    };
                    let gone = |other: &String| other.starts_with(&below) && !made.contains(other);
                    if self
                        .0
                        .keys()
                        .any(|other| gone(other) && self.1.contains(other))
                    {
                        return Err(Refused);
                    }
                    self.0.retain(|other, _| !gone(other));
                }
                Node::Folder if self.0.get(&place) == Some(&Node::Folder) => made.push(place),
                Node::Folder | Node::File | Node::Link(_)
                    if made.contains(&place) || self.1.contains(&place) =>
                {
                    return Err(Refused);
                }
                Node::Folder | Node::File | Node::Link(_) => {
                    self.remove(&place);
                    self.0.insert(place.clone(), node.clone());
                    made.push(place);
                }
            }
        }
        Ok(())
    }
}

fn join(folder: &str, name: &str) -> String {
    match folder.is_empty() {
        true => name.to_owned(),
        false => format!("{folder}/{name}"),
    }
}

fn tar(layer: &Layer) -> Vec<u8> {
    layer
        .iter()
        .fold(Tar::default(), |tar, (path, node)| match node {
            Node::Folder => tar.folder(path, 0o755),
            Node::File | Node::Whiteout | Node::Opaque => tar.file(path, b""),
            Node::Link(target) => tar.symlink(path, target),
        })
        .end()
}

fn listing(folder: &Path) -> BTreeMap<String, String> {
    let mut list = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            // overlayfs lists a whiteout in a folder that one layer alone has, and has nothing of that name.
            let Ok(found) = fs::symlink_metadata(&path) else {
                continue;
            };
            let kind = found.file_type();
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
            let shown = if kind.is_symlink() {
                fs::read_link(&path).unwrap().to_str().unwrap().to_owned()
            } else if kind.is_dir() {
                "folder".to_owned()
            } else {
                "file".to_owned()
            };
            list.insert(name.to_owned(), shown);
            if kind.is_dir() {
                folders.push(path);
            }
        }
    }
    list
}

fn shown(model: &Model) -> BTreeMap<String, String> {
    let shown = |node: &Node| match node {
        Node::Link(target) => (*target).to_owned(),
        Node::Folder => "folder".to_owned(),
        Node::File | Node::Whiteout | Node::Opaque => "file".to_owned(),
    };
    model
        .0
        .iter()
        .map(|(path, node)| (path.clone(), shown(node)))
        .collect()
}

fn contradicts_itself(error: &ArchiveError) -> bool {
    matches!(error, ArchiveError::Layer { source: LayerError::Refused { reason, .. }, .. }
        if reason.contains("by two paths of the layer"))
}

fn layer() -> impl Strategy<Value = Layer> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    let path = prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"));
    let targets = vec![
        "a", "b", "c", "b/c", "../b", "../../c", "/c", "/a/b", "..", ".",
    ];
    let node = prop_oneof![
        2 => Just(Node::Folder),
        4 => Just(Node::File),
        4 => prop::sample::select(targets).prop_map(Node::Link),
        1 => Just(Node::Whiteout),
        1 => Just(Node::Opaque),
    ];
    prop::collection::vec((path, node), 1..6).prop_map(|entries| {
        let named = |(path, node): (String, Node)| {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path.as_str()));
            let path = match node {
                Node::Whiteout => join(parent, &format!(".wh.{name}")),
                Node::Opaque => join(&path, ".wh..wh..opq"),
                Node::Folder | Node::File | Node::Link(_) => path,
            };
            (path, node)
        };
        entries.into_iter().map(named).collect()
    })
}

proptest! {
    // One seed: a layer that contradicts itself in a way that the model does not know would fail by chance.
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn layers_with_links_are_what_they_are_applied_one_by_one(layers in prop::collection::vec(layer(), 2..4)) {
        let mut model = Model::default();
        if layers.iter().any(|layer| model.apply(layer).is_err()) {
            return Ok(());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let found = runtime.block_on(async {
            let home = tempfile::tempdir_in("/dev/shm").unwrap();
            let tars = layers.iter().map(tar).collect();
            let mounted = match Mounted::try_import_at(home, tars).await {
                Ok(mounted) => mounted,
                Err(error) if contradicts_itself(&error) => return None,
                Err(other) => panic!("{other:?}"),
            };
            let target = mounted.target();
            mounted.store.mount_rootfs(&mounted.image, &target, None).await.unwrap();
            let found = listing(&target);
            mounted.store.unmount_rootfs(&target).await.unwrap();
            Some(found)
        });
        if let Some(found) = found {
            prop_assert_eq!(found, shown(&model));
        }
    }
}
