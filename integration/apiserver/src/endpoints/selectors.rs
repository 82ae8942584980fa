//! Label and field selectors, as texts in queries.

use serde_json::Value;

use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::QueryParameters;

/// Which objects a list, a watch or a deletion of many is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListSelector {
    labels: Vec<LabelRequirement>,
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq)]
enum LabelRequirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Has(String),
    Lacks(String),
}

#[derive(Clone, Debug, PartialEq)]
struct FieldRequirement {
    path: String,
    value: String,
    equal: bool,
}

impl ListSelector {
    pub(crate) fn parse(query: &QueryParameters) -> Result<ListSelector, StatusError> {
        let labels = query
            .get("labelSelector")
            .map(labels)
            .transpose()?
            .unwrap_or_default();
        let fields = query
            .get("fieldSelector")
            .map(fields)
            .transpose()?
            .unwrap_or_default();
        Ok(ListSelector { labels, fields })
    }

    /// Narrows it to one object: what a watch of one name is.
    pub(crate) fn named(mut self, name: &str) -> ListSelector {
        self.fields.push(FieldRequirement {
            path: "metadata.name".to_string(),
            value: name.to_string(),
            equal: true,
        });
        self
    }

    pub(crate) fn takes(&self, object: &Value) -> bool {
        let set = &object["metadata"]["labels"];
        self.labels.iter().all(|label| label.takes(set))
            && self.fields.iter().all(|field| field.takes(object))
    }
}

impl LabelRequirement {
    fn takes(&self, set: &Value) -> bool {
        let one_of = |key: &str, values: &[String]| {
            set[key]
                .as_str()
                .is_some_and(|value| values.iter().any(|known| known == value))
        };
        match self {
            LabelRequirement::In(key, values) => one_of(key, values),
            LabelRequirement::NotIn(key, values) => !one_of(key, values),
            LabelRequirement::Has(key) => set.get(key).is_some(),
            LabelRequirement::Lacks(key) => set.get(key).is_none(),
        }
    }
}

impl FieldRequirement {
    fn takes(&self, object: &Value) -> bool {
        // Events call the same thing by two names.
        let path = match self.path.split_once('.') {
            Some(("regarding", rest)) if object.get("regarding").is_none() => {
                format!("involvedObject.{rest}")
            }
            _ if self.path == "source" => "source.component".to_string(),
            _ => self.path.clone(),
        };
        let found = path.split('.').try_fold(object, |at, step| at.get(step));
        let text = match found {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => default_of(&path),
            Some(other) => other.to_string(),
        };
        (text == self.value) == self.equal
    }
}

/// Returns what an absent field counts as.
fn default_of(path: &str) -> String {
    if path == "spec.unschedulable" || path == "spec.hostNetwork" {
        "false".to_string()
    } else {
        String::new()
    }
}

fn fields(text: &str) -> Result<Vec<FieldRequirement>, StatusError> {
    let terms = text
        .split(',')
        .map(str::trim)
        .filter(|term| !term.is_empty());
    terms.map(field).collect()
}

fn field(term: &str) -> Result<FieldRequirement, StatusError> {
    let (path, value, equal) = if let Some((path, value)) = term.split_once("!=") {
        (path, value, false)
    } else if let Some((path, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (path, value, true)
    } else {
        return Err(StatusError::bad_request(format!(
            "invalid field selector: \"{term}\"; can't understand '{term}'"
        )));
    };
    Ok(FieldRequirement {
        path: path.trim().to_string(),
        value: value.trim().to_string(),
        equal,
    })
}

fn labels(text: &str) -> Result<Vec<LabelRequirement>, StatusError> {
    let refused = || StatusError::bad_request(format!("unable to parse requirement: {text}"));
    split_outside_brackets(text)
        .into_iter()
        .map(|term| label(term.trim()).ok_or_else(refused))
        .collect()
}

fn label(term: &str) -> Option<LabelRequirement> {
    let own = |text: &str| text.trim().to_string();
    if let Some((head, values)) = term.strip_suffix(')').and_then(|term| term.split_once('(')) {
        let values = values.split(',').map(own).collect();
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => Some(LabelRequirement::In(own(key), values)),
            "notin" => Some(LabelRequirement::NotIn(own(key), values)),
            _ => None,
        };
    }
    if let Some((key, value)) = term.split_once("!=") {
        return Some(LabelRequirement::NotIn(own(key), vec![own(value)]));
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Some(LabelRequirement::In(own(key), vec![own(value)]));
    }
    match term.strip_prefix('!') {
        Some(key) => Some(LabelRequirement::Lacks(own(key))),
        None if term.is_empty() || term.contains(char::is_whitespace) => None,
        None => Some(LabelRequirement::Has(own(term))),
    }
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let cut = |letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0
    };
    text.split(cut)
        .filter(|term| !term.trim().is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::ListSelector;
    use crate::endpoints::request_info::QueryParameters;

    #[test]
    fn labels_select_as_their_operators_say() {
        let object = json!({"metadata": {"name": "x", "labels": {"app": "web", "tier": "front"}}});
        let table = [
            ("app=web", true),
            ("app==web", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (web,db),tier", true),
            ("app notin (web, db)", false),
            ("!app", false),
            ("!gone,app", true),
            ("gone", false),
        ];
        for (text, takes) in table {
            let query = QueryParameters::parse(&format!(
                "labelSelector={}",
                text.replace('=', "%3D").replace(' ', "+")
            ));
            assert_eq!(
                ListSelector::parse(&query).unwrap().takes(&object),
                takes,
                "{text}"
            );
        }
        assert!(ListSelector::parse(&QueryParameters::parse("labelSelector=a%20b")).is_err());
    }

    #[test]
    fn fields_select_by_path_and_absent_is_empty() {
        let object = json!({"metadata": {"name": "x", "namespace": "default"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
        let table = [
            ("spec.nodeName=n", true),
            ("spec.nodeName!=n", false),
            (
                "status.phase!=Failed,status.phase!=Succeeded,spec.nodeName=n",
                true,
            ),
            ("metadata.name=y", false),
            ("spec.host=", true),
            ("spec.hostNetwork=false", true),
        ];
        for (text, takes) in table {
            let query =
                QueryParameters::parse(&format!("fieldSelector={}", text.replace('=', "%3D")));
            assert_eq!(
                ListSelector::parse(&query).unwrap().takes(&object),
                takes,
                "{text}"
            );
        }
        assert!(ListSelector::parse(&QueryParameters::parse("fieldSelector=nonsense")).is_err());
    }
}
