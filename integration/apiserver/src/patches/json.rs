//! JSON patch, RFC 6902.

use serde::Deserialize;
use serde_json::Value;

use crate::answer::Failure;

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Step {
    Add { path: String, value: Value },
    Remove { path: String },
    Replace { path: String, value: Value },
    Move { from: String, path: String },
    Copy { from: String, path: String },
    Test { path: String, value: Value },
}

pub(super) fn apply(object: &mut Value, patch: &Value) -> Result<(), Failure> {
    let steps: Vec<Step> = serde::Deserialize::deserialize(patch)
        .map_err(|why| Failure::bad_request(format!("error decoding patch: {why}")))?;
    for step in steps {
        take(object, step)?;
    }
    Ok(())
}

fn take(object: &mut Value, step: Step) -> Result<(), Failure> {
    match step {
        Step::Add { path, value } => add(object, &path, value),
        Step::Remove { path } => remove(object, &path).map(drop),
        Step::Replace { path, value } => {
            *object
                .pointer_mut(&path)
                .ok_or_else(|| missing("replace", &path))? = value;
            Ok(())
        }
        Step::Move { from, path } => {
            let value = remove(object, &from)?;
            add(object, &path, value)
        }
        Step::Copy { from, path } => {
            let value = object
                .pointer(&from)
                .cloned()
                .ok_or_else(|| missing("copy", &from))?;
            add(object, &path, value)
        }
        Step::Test { path, value } if object.pointer(&path).unwrap_or(&Value::Null) == &value => {
            Ok(())
        }
        Step::Test { path, .. } => {
            Err(refused(format!("testing value {path} failed: test failed")))
        }
    }
}

fn add(object: &mut Value, path: &str, value: Value) -> Result<(), Failure> {
    let Some((parent, last)) = path.rsplit_once('/') else {
        *object = value;
        return Ok(());
    };
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            fields.insert(unescaped(last), value);
            Ok(())
        }
        Some(Value::Array(items)) => {
            let at = if last == "-" {
                Some(items.len())
            } else {
                last.parse().ok().filter(|at| *at <= items.len())
            };
            items.insert(at.ok_or_else(|| missing("add", path))?, value);
            Ok(())
        }
        _ => Err(missing("add", path)),
    }
}

fn remove(object: &mut Value, path: &str) -> Result<Value, Failure> {
    let (parent, last) = path
        .rsplit_once('/')
        .ok_or_else(|| missing("remove", path))?;
    let taken = match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => fields.remove(&unescaped(last)),
        Some(Value::Array(items)) => last
            .parse()
            .ok()
            .filter(|at| *at < items.len())
            .map(|at: usize| items.remove(at)),
        _ => None,
    };
    taken.ok_or_else(|| missing("remove", path))
}

fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

fn missing(operation: &str, path: &str) -> Failure {
    refused(format!(
        "{operation} operation does not apply: doc is missing path: {path}: missing value"
    ))
}

fn refused(message: String) -> Failure {
    Failure::new(
        422,
        "Invalid",
        format!("the server rejected our request due to an error in our request: {message}"),
    )
}
