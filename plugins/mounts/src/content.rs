//! One small file of a mounted volume, for the agent that must not look itself.

use std::path::Path;

use proto::storage::ReadFileRequest;
use tonic::Status;

use crate::requests;
use crate::safe::Root;

/// The limit of a read in bytes when the request names none.
const MOST_DEFAULT: u32 = 1 << 20;
/// The largest limit of a read in bytes: the largest message, less the fields around the content.
const MOST: u32 = 32 << 20;

/// Reads the file that the request names, without leaving the volume.
pub fn read_file(request: &ReadFileRequest) -> Result<Vec<u8>, Status> {
    let root = requests::absolute("root", &request.root)?;
    let path = requests::relative("path", requests::present("path", &request.path)?)?;
    let most = match request.max_bytes {
        0 => MOST_DEFAULT,
        most => most.min(MOST),
    };
    read(&root, &path, most)
}

fn read(root: &Path, path: &Path, most: u32) -> Result<Vec<u8>, Status> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    Ok(Root::open(root)?.read_file(path, most)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    fn request(test_dir: &TestDir, path: &str) -> ReadFileRequest {
        ReadFileRequest {
            root: test_dir.path("volume").display().to_string(),
            path: path.to_owned(),
            max_bytes: 8,
            ..ReadFileRequest::default()
        }
    }

    #[test]
    fn one_small_file_is_read_and_nothing_beside_the_volume() {
        let test_dir = TestDir::new();
        test_dir.file("volume/..data/token", "t");
        test_dir.file("volume/large", "123456789");
        test_dir.file("secret", "s");
        std::os::unix::fs::symlink("../secret", test_dir.path("volume/out")).unwrap();
        assert_eq!(
            read_file(&request(&test_dir, "..data/token")).unwrap(),
            b"t"
        );
        for (path, code) in [
            ("large", tonic::Code::ResourceExhausted),
            ("out", tonic::Code::InvalidArgument),
            ("../secret", tonic::Code::InvalidArgument),
            ("/etc/passwd", tonic::Code::InvalidArgument),
            ("", tonic::Code::InvalidArgument),
            ("nothing", tonic::Code::NotFound),
            ("..data", tonic::Code::FailedPrecondition),
        ] {
            let refusal = read_file(&request(&test_dir, path)).unwrap_err();
            assert_eq!(refusal.code(), code, "{path}: {refusal}");
        }
    }

    #[test]
    fn a_request_without_a_root_is_refused() {
        let refusal = read_file(&ReadFileRequest::default()).unwrap_err();
        assert_eq!(refusal.message(), "root is missing");
    }
}
