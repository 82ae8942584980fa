//! The tests' own way to the objects of a real server: as its administrator, by curl.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::clock;
use crate::endpoints::answer::StatusError;

/// An object as the server says it, or why not.
type ObjectResult = Result<Value, StatusError>;

/// A server that takes longer hangs.
const REQUEST_TIMEOUT_SECONDS: &str = "20";

/// The way to a server on loopback, whose files are in this folder.
#[derive(Clone, Debug)]
pub(crate) struct CurlClient {
    pub(crate) port: u16,
    pub(crate) folder: PathBuf,
}

impl CurlClient {
    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Returns an object, or a list, by its path; what is no JSON comes as a string.
    pub(crate) fn get(&self, path: &str) -> ObjectResult {
        self.ask("GET", path, "application/json", &Value::Null)
    }

    /// Creates an object in the collection of a path.
    pub(crate) fn post(&self, path: &str, object: &Value) -> ObjectResult {
        self.ask("POST", path, "application/json", object)
    }

    /// Replaces an object, or makes it if it is not there, as `kubectl replace` does.
    pub(crate) fn put(&self, path: &str, object: &Value) -> ObjectResult {
        match self.ask("PUT", path, "application/json", object) {
            Err(failure) if failure.code == 404 => {
                let collection = path
                    .rsplit_once('/')
                    .map_or(path, |(collection, _)| collection);
                self.post(collection, object)
            }
            answer => answer,
        }
    }

    /// Patches an object by JSON merge.
    pub(crate) fn patch(&self, path: &str, patch: &Value) -> ObjectResult {
        self.ask("PATCH", path, "application/merge-patch+json", patch)
    }

    /// Deletes an object as a user does.
    pub(crate) fn delete(&self, path: &str) -> ObjectResult {
        self.ask("DELETE", path, "application/json", &Value::Null)
    }

    /// Waits until an object is as wanted and returns it; none if that does not come to pass in time.
    pub(crate) async fn wait(
        &self,
        path: &str,
        within: Duration,
        wanted: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Option<Value>> {
        let until = clock::later(clock::now(), within.as_secs().cast_signed());
        loop {
            match self.get(path) {
                Ok(object) if wanted(Some(&object)) => return Some(Some(object)),
                Err(failure) if failure.code == 404 && wanted(None) => return Some(None),
                Ok(_) | Err(_) => {}
            }
            if clock::now() > until {
                return None;
            }
            super::pause();
            tokio::task::yield_now().await;
        }
    }

    fn ask(&self, method: &str, path: &str, content_type: &str, body: &Value) -> ObjectResult {
        let mut curl = Command::new("curl");
        curl.args([
            "-sS",
            "--max-time",
            REQUEST_TIMEOUT_SECONDS,
            "-X",
            method,
            "-w",
            "\n%{http_code}",
        ]);
        curl.args(["--cacert", &self.path("ca.pem")]);
        curl.args([
            "--cert",
            &self.path("admin.pem"),
            "--key",
            &self.path("admin.key"),
        ]);
        curl.args(["-H", &format!("Content-Type: {content_type}")]);
        if !body.is_null() {
            curl.args(["--data-binary", "@-"]);
        }
        curl.arg(format!("{}{path}", self.url()));
        let said =
            run(curl, body).map_err(|why| StatusError::new(0, "Unreachable", why.to_string()))?;
        let (text, code) = said.rsplit_once('\n').unwrap_or_default();
        let answer = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        let word = |name: &str| answer[name].as_str().unwrap_or(text).to_string();
        match code.parse().unwrap_or_default() {
            200..300 => Ok(answer),
            code => Err(StatusError::new(code, &word("reason"), word("message"))),
        }
    }
}

fn run(mut curl: Command, body: &Value) -> anyhow::Result<String> {
    curl.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = curl.spawn()?;
    if let Some(mut input) = child.stdin.take()
        && !body.is_null()
    {
        input.write_all(body.to_string().as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{complaint}");
    Ok(String::from_utf8(output.stdout)?)
}
