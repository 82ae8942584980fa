//! One small file of a mounted volume, for the agent that must not look itself.

use std::path::Path;

use proto::storage::ReadFileRequest;
use tonic::Status;

use crate::requests;
use crate::safe::Root;

/// What is read when the request names no limit.
const MOST_DEFAULT: u32 = 1 << 20;
/// What is read at most: the largest message, less what is around the bytes.
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
