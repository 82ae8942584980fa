//! Pulls, for `GET /images`, and the images that the runtime has, for `GET /images/present`.

use std::time::Duration;

use clients::runtime::{ListedImage, RuntimeClient};
use kernel::Addr;
use pods::images::{Msg, Snapshot};
use serde::{Deserialize, Serialize};

use super::route::AdminError;

/// The image manager answers from memory.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// A runtime lists its images from memory; the console waits ten seconds for all of an answer.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// A node has some tens of images; collection keeps it from having very many.
const MAX_IMAGES: usize = 1000;

/// The images that the runtime has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeImages {
    /// By name.
    pub rows: Vec<RuntimeImageRow>,
    /// Images that are not among the rows, which are bounded.
    pub left_out: usize,
}

/// An image of the runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeImageRow {
    /// Its tags; where it has none its digests, each with its repository.
    pub names: Vec<String>,
    pub id: String,
    /// On the disk.
    pub bytes: u64,
}

pub(super) async fn list(images: &Addr<Msg>) -> Result<Snapshot, AdminError> {
    let silent = |source| AdminError::Silent {
        who: "the image manager",
        source,
    };
    images
        .ask(ASK_TIMEOUT, |reply| Msg::List { reply })
        .await
        .map_err(silent)
}

pub(super) async fn present(runtime: &RuntimeClient) -> Result<RuntimeImages, AdminError> {
    match tokio::time::timeout(LIST_TIMEOUT, runtime.images()).await {
        Ok(Ok(listed)) => Ok(rows(listed)),
        Ok(Err(error)) => Err(AdminError::Untold {
            why: error.describe(),
        }),
        Err(_) => {
            let seconds = LIST_TIMEOUT.as_secs();
            let why = format!("the runtime did not list its images within {seconds} s");
            Err(AdminError::Untold { why })
        }
    }
}

fn rows(listed: Vec<ListedImage>) -> RuntimeImages {
    let mut rows: Vec<RuntimeImageRow> = listed.into_iter().map(row).collect();
    rows.sort_by(|one, other| (&one.names, &one.id).cmp(&(&other.names, &other.id)));
    let left_out = rows.len().saturating_sub(MAX_IMAGES);
    rows.truncate(MAX_IMAGES);
    RuntimeImages { rows, left_out }
}

fn row(image: ListedImage) -> RuntimeImageRow {
    let (digests, tags): (Vec<String>, Vec<String>) =
        image.names.into_iter().partition(|name| name.contains('@'));
    let mut names = match tags.is_empty() {
        true => digests,
        false => tags,
    };
    names.sort();
    RuntimeImageRow {
        names,
        id: image.reference.to_string(),
        bytes: image.bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(id: &str, names: &[&str]) -> ListedImage {
        ListedImage {
            reference: id.into(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            bytes: 7,
        }
    }

    #[test]
    fn images_go_by_their_tags_and_by_digests_where_they_have_none() {
        let images = vec![
            listed("3", &["r/c@sha256:c"]),
            listed("2", &["r/b@sha256:b", "r/b:2", "r/b:1"]),
            listed("1", &[]),
        ];
        let found = rows(images);
        let found: Vec<(String, &str)> = found
            .rows
            .iter()
            .map(|row| (row.names.join(" "), row.id.as_str()))
            .collect();
        let expected = [("", "1"), ("r/b:1 r/b:2", "2"), ("r/c@sha256:c", "3")];
        assert_eq!(found, expected.map(|(names, id)| (names.to_owned(), id)));
    }

    #[test]
    fn images_beyond_the_bound_are_counted() {
        let images = (0..MAX_IMAGES + 3).map(|number| listed(&number.to_string(), &[]));
        let found = rows(images.collect());
        assert_eq!((found.rows.len(), found.left_out), (MAX_IMAGES, 3));
    }
}
