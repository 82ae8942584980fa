//! Whether there is a program to run, looked for as the container's user in the container's root. What is wrong is said in
//! the words of Go's `exec.LookPath`, which runc's users know and search for.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// How the errors begin.
const PREFIX: &str = "exec: ";

/// Returns where a program is: at its path, or by its name in one of the folders of `path`.
pub(crate) fn look(program: &str, path: &str) -> Result<PathBuf, String> {
    if program.contains('/') {
        let found = is_program(Path::new(program));
        return match found {
            Ok(()) => Ok(program.into()),
            Err(why) => Err(format!("{PREFIX}{program:?}: {why}")),
        };
    }
    let mut places = path
        .split(':')
        .map(|folder| Path::new(folder).join(program));
    let found = places.find(|place| is_program(place).is_ok());
    found.ok_or_else(|| format!("{PREFIX}{program:?}: executable file not found in $PATH"))
}

fn is_program(path: &Path) -> Result<(), String> {
    let meta = path.metadata();
    let meta = meta.map_err(|error| format!("stat {}: {}", path.display(), words(&error)))?;
    if meta.is_dir() {
        return Err("is a directory".to_owned());
    }
    // Not the mode: who is asked for is the user that the container runs as.
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)
        .map_err(|error| words(&io::Error::from(error)))
}

/// The system's words for an error as Go has them: in lower case and without the number.
pub(crate) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    text.to_lowercase()
}

/// What is said where the program is there and the kernel doesn't run it, as by runc.
pub(crate) fn refused(program: &Path, error: nix::errno::Errno) -> String {
    let why = words(&io::Error::from(error));
    format!("exec {}: {why}", program.display())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_program_is_said_in_gos_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for (name, mode) in [("plain", 0o644), ("mine", 0o700)] {
            fs::write(path(name), "").unwrap();
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let text = folder.path().display().to_string();
        let found = |program: &str| look(program, &format!("/no/such:{text}"));
        let mine = Ok(PathBuf::from(path("mine")));
        assert_eq!((found("mine"), found(&path("mine"))), (mine.clone(), mine));
        for absent in ["nonexistent", "plain"] {
            let expected = format!("exec: {absent:?}: executable file not found in $PATH");
            assert_eq!(found(absent), Err(expected));
        }
        let expected = format!("exec: {:?}: permission denied", path("plain"));
        assert_eq!(found(&path("plain")), Err(expected));
        assert_eq!(
            found("/no/such"),
            Err("exec: \"/no/such\": stat /no/such: no such file or directory".to_owned())
        );
        let expected = format!("exec: {text:?}: is a directory");
        assert_eq!(found(&text), Err(expected));
        assert_eq!(
            refused(Path::new("/a"), nix::errno::Errno::ENOEXEC),
            "exec /a: exec format error"
        );
    }
}
