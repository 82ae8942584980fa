//! The picture of the supervision tree in `docs/architecture.md` is the tree that runs.

use super::*;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/architecture.md");
const BEGIN: &str = "<!-- the running tree, compared by a test -->\n```\n";
const END: &str = "```\n";

/// One line a supervisor or actor, in the order in which they are started; all dynamic children are one line.
fn draw(node: &Value, indent: &str, picture: &mut String) {
    let children = node["children"].as_array().cloned().unwrap_or_default();
    let is_of_pods = node["path"] == "oxlet/pods/workers";
    if is_of_pods {
        picture.push_str(&format!("{indent}└── one worker a pod\n"));
        return;
    }
    for (at, child) in children.iter().enumerate() {
        let is_last = at + 1 == children.len();
        let (branch, bar) = if is_last {
            ("└── ", "    ")
        } else {
            ("├── ", "│   ")
        };
        let id = child["id"].as_str().unwrap();
        picture.push_str(&format!("{indent}{branch}{id}\n"));
        draw(child, &format!("{indent}{bar}"), picture);
    }
}

#[tokio::test]
async fn the_picture_in_the_documents_is_the_running_tree() {
    let cluster = started().await;
    let tree = cluster.node.admin("/tree").await.unwrap();
    let mut picture = format!("{}\n", tree["id"].as_str().unwrap());
    draw(&tree, "", &mut picture);
    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    let shown = document.split_once(BEGIN).map(|(_, rest)| rest);
    let shown = shown
        .and_then(|rest| rest.split_once(END))
        .map(|(shown, _)| shown);
    assert_eq!(
        shown.unwrap_or("no picture between the markers"),
        picture,
        "docs/architecture.md shows another tree than the one that runs:\n{picture}"
    );
}
