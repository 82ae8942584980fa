//! The table of programs, `tests/data/field`: a file each. The layers of their packages are made by `.ci/field-layers`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The programs of `make test`; `FIELD` names others, or `all`.
const SHORT: &str = "nginx,postgresql,redis";

/// A program of the table.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Program {
    /// The file's name without its ending.
    #[serde(skip)]
    pub(super) name: String,
    /// Debian packages; read by `.ci/field-layers`, as `run` is.
    #[serde(rename = "packages")]
    _packages: Vec<String>,
    /// A command in the layer, after its packages are there.
    #[serde(rename = "run", default)]
    _run: String,
    /// The image's config, in OCI's words.
    pub(super) image: Map<String, Value>,
    /// Files on top of the packages. What begins with `#!` is executable.
    #[serde(default)]
    pub(super) files: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) links: BTreeMap<String, String>,
    /// Fields of the container.
    pub(super) container: Map<String, Value>,
    /// Further fields of the pod's spec. `$(DATA)` is a folder that outlives the pod.
    #[serde(default)]
    pod: Map<String, Value>,
    /// What another pod of the same image asks of the program; `$(ADDRESS)` is the pod's address.
    /// None: it has no clients.
    client: Option<Command>,
    /// The same once more, of a second pod with the first one's data; `client` unless it says otherwise.
    kept: Option<Command>,
    /// A command in the container.
    pub(super) exec: Command,
    /// A line of the log has this text.
    pub(super) log: String,
    /// A command that takes more of the disk than the container may have: the node evicts the pod, and not the API.
    overuse: Option<Vec<String>>,
    /// How it ends where it is asked to by the image's signal.
    pub(super) stop: End,
    /// A signal on which it ends by itself, where that is another one.
    restart: Option<End>,
}

/// A command, and what its output is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Command {
    pub(super) command: Vec<String>,
    pub(super) prints: String,
}

/// The end of a program's first process.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct End {
    /// A name as `SIGTERM`.
    pub(super) signal: String,
    pub(super) exit_code: i64,
}

impl Program {
    /// Returns the programs that this run is about.
    pub(super) fn selected() -> Result<Vec<Program>> {
        let wanted = std::env::var("FIELD").unwrap_or_else(|_| SHORT.to_owned());
        let mut names: Vec<_> = if wanted == "all" {
            fs::read_dir(table())?
                .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
                .collect()
        } else {
            wanted.split(',').map(str::to_owned).collect()
        };
        names.sort();
        names.iter().map(|name| Program::read(name)).collect()
    }

    fn read(name: &str) -> Result<Program> {
        let file = table().join(format!("{name}.yaml"));
        let text = fs::read_to_string(&file).with_context(|| format!("no program {name}"))?;
        let mut program: Program =
            serde_saphyr::from_str(&text).with_context(|| file.display().to_string())?;
        name.clone_into(&mut program.name);
        Ok(program)
    }

    pub(super) fn image_name(&self) -> String {
        format!("localhost/field/{}:1", self.name)
    }

    pub(super) fn client(&self) -> Option<&Command> {
        self.client.as_ref()
    }

    pub(super) fn kept(&self) -> Option<&Command> {
        self.kept.as_ref().or(self.client())
    }

    pub(super) fn overuse(&self) -> Option<&[String]> {
        self.overuse.as_deref()
    }

    pub(super) fn restart(&self) -> &End {
        self.restart.as_ref().unwrap_or(&self.stop)
    }

    /// The program's pod, with its data in this folder.
    pub(super) fn pod(&self, name: &str, data: &Path) -> Result<Value> {
        let mut container = self.container.clone();
        container.insert("name".to_owned(), json!("app"));
        container.insert("image".to_owned(), json!(self.image_name()));
        container.insert("resources".to_owned(), resources());
        let mut spec = self.pod.clone();
        spec.insert("containers".to_owned(), json!([container]));
        let spec = json!(spec).to_string();
        let spec = spec.replace("$(DATA)", &data.display().to_string());
        Ok(pod(name, serde_json::from_str(&spec)?))
    }

    /// A pod whose container waits to be a client.
    pub(super) fn client_pod(&self, name: &str) -> Value {
        let container = json!({
            "name": "app",
            "image": self.image_name(),
            "command": ["sleep", "infinity"],
            "securityContext": { "runAsUser": 0 },
        });
        pod(
            name,
            json!({ "containers": [container], "terminationGracePeriodSeconds": 1 }),
        )
    }
}

fn pod(name: &str, mut spec: Value) -> Value {
    spec["nodeName"] = json!(integration::agent::NODE_NAME);
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec })
}

/// What each program has before its resize.
fn resources() -> Value {
    json!({
        "requests": { "cpu": "50m", "memory": "64Mi", "ephemeral-storage": "0" },
        "limits": { "cpu": "2", "memory": "512Mi", "ephemeral-storage": "200Mi" },
    })
}

fn table() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/field")
}

/// A layer as `.ci/field-layers` made it.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) file: PathBuf,
    /// `sha256:…`
    pub(super) digest: String,
}

impl Layer {
    /// Finds a layer in the folder `field` beside the folder of this build.
    pub(super) fn find(name: &str) -> Result<Layer> {
        let program = std::env::current_exe()?;
        let mut above = program.ancestors().map(|folder| folder.join("field"));
        let folder = above.find(|folder| folder.is_dir());
        let missing = || format!("no layer {name}: run `.ci/field-layers` as root first");
        let file = folder.with_context(missing)?.join(format!("{name}.tar"));
        ensure!(file.exists(), missing());
        let digest = fs::read_to_string(file.with_extension("digest"))?;
        Ok(Layer {
            file,
            digest: format!("sha256:{}", digest.trim()),
        })
    }
}
