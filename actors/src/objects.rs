//! Objects of the API from a folder of manifests: what pods refer to while no API server is asked.
//!
//! Read once, at the start. What is wrong with a file is logged with the file's name and hides nothing else.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use logic::objects::{MAX_FILE_BYTES, ObjectError, StaticObjects, parse};

/// A folder with more files than this is not meant for us.
const MOST_FILES: usize = 1000;
/// All files together, so that a folder cannot fill the memory.
const MOST_BYTES: usize = 64 << 20;

/// Why a file is not taken.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the file cannot be read")]
    Unreadable(#[from] io::Error),
    #[error("found something else than a regular file")]
    WrongType,
    #[error("the folder's files have more than {MOST_BYTES} bytes together")]
    TooMuch,
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error("{object} stands in a file before it already")]
    Twice { object: String },
}

/// Reads the folder's `*.yaml`, `*.yml` and `*.json` in the order of their names; of two objects of the same
/// name the first one stays. No folder (an empty path) holds nothing.
pub fn load(folder: &str) -> StaticObjects {
    let mut objects = StaticObjects::default();
    if folder.is_empty() {
        return objects;
    }
    let folder = Path::new(folder);
    let mut left = MOST_BYTES;
    let files = match files(folder) {
        Ok(files) => files,
        Err(error) => {
            tracing::warn!(
                "the folder of objects {} cannot be read: {error}",
                folder.display()
            );
            return objects;
        }
    };
    for file in files {
        for refused in take(&file, &mut left, &mut objects) {
            let refused = anyhow::Error::new(refused);
            tracing::warn!("object manifest {}: {refused:#}", file.display());
        }
    }
    objects
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|text| text.to_str());
        if !matches!(extension, Some("yaml" | "yml" | "json")) {
            continue;
        }
        if files.len() == MOST_FILES {
            tracing::warn!(
                "the folder of objects {} has more than {MOST_FILES} manifests, the rest is not read",
                folder.display()
            );
            break;
        }
        files.push(path);
    }
    files.sort();
    Ok(files)
}

fn take(file: &Path, left: &mut usize, objects: &mut StaticObjects) -> Vec<Refused> {
    let data = match read(file, left) {
        Ok(data) => data,
        Err(refused) => return vec![refused],
    };
    let parsed = parse(&data);
    let problems = parsed.problems.into_iter().map(Refused::Object);
    let twice = objects.merge(parsed.objects).into_iter();
    problems
        .chain(twice.map(|object| Refused::Twice { object }))
        .collect()
}

/// A pipe or device would keep the start waiting, so only a regular file is opened.
fn read(path: &Path, left: &mut usize) -> Result<Vec<u8>, Refused> {
    if !fs::metadata(path)?.is_file() {
        return Err(Refused::WrongType);
    }
    let mut data = Vec::new();
    let bound = u64::try_from(MAX_FILE_BYTES + 1).unwrap_or(u64::MAX);
    File::open(path)?.take(bound).read_to_end(&mut data)?;
    *left = left.checked_sub(data.len()).ok_or(Refused::TooMuch)?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use logic::objects::Objects;

    use super::*;

    fn map(name: &str, value: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{k: {value}}}}}"
        )
    }

    fn value(objects: &StaticObjects, name: &str) -> Option<String> {
        let map = objects.config_map("default", name)?;
        map.data.as_ref()?.get("k").cloned()
    }

    #[test]
    fn a_bad_file_hides_no_good_one_and_the_first_name_stays() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "a.yaml",
            &format!("{}\n---\n{}\n", map("one", "a"), map("two", "a")),
        );
        write("b.json", "{\"apiVersion\": \"v1\", \"kind\": \"Pod\"}");
        write("c.yml", &map("one", "c"));
        write("d.yaml", &format!("{}\n---\nnonsense\n", map("three", "d")));
        write("e.txt", &map("four", "e"));
        write("f.yaml", &"x".repeat(MAX_FILE_BYTES + 1));
        fs::create_dir(folder.path().join("g.yaml")).unwrap();
        symlink("/dev/zero", folder.path().join("h.yaml")).unwrap();
        let objects = load(folder.path().to_str().unwrap());
        assert_eq!(value(&objects, "one").as_deref(), Some("a"));
        assert_eq!(value(&objects, "two").as_deref(), Some("a"));
        assert_eq!(value(&objects, "three").as_deref(), Some("d"));
        assert_eq!(value(&objects, "four"), None);
        assert_eq!(objects.config_maps.len(), 3);
    }

    #[test]
    fn each_problem_of_a_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        let mut objects = StaticObjects::default();
        let told = |objects: &mut StaticObjects, text: &str, mut left: usize| {
            fs::write(&file, text).unwrap();
            let refused = take(&file, &mut left, objects);
            refused.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(told(&mut objects, &map("one", "a"), 1000).is_empty());
        let twice = told(&mut objects, &map("one", "b"), 1000);
        assert_eq!(
            twice,
            ["ConfigMap default/one stands in a file before it already"]
        );
        let much = told(&mut objects, &map("two", "a"), 5);
        assert_eq!(
            much,
            [format!(
                "the folder's files have more than {MOST_BYTES} bytes together"
            )]
        );
        assert_eq!(told(&mut objects, "[]\n---\n{}\n", 1000).len(), 2);
    }

    #[test]
    fn a_folder_that_is_not_there_holds_nothing() {
        for folder in ["", "/nonexistent/objects"] {
            assert!(load(folder).services().is_empty());
        }
    }
}
