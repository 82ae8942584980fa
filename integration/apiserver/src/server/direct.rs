//! The tests' own way to the objects: by path, past the wire, faults, rights and the journal; it works during an outage
//! too.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Uri, header};
use serde_json::Value;

use super::Server;
use crate::endpoints::answer::StatusError;
use crate::endpoints::request_info::{RequestInfo, UserInfo};
use crate::verbs;

impl Server {
    /// Returns an object, or a list, by its path: `/api/v1/namespaces/default/pods/x`.
    pub fn get(&self, path: &str) -> Result<Value, StatusError> {
        self.direct(Method::GET, path, "", &Value::Null)
    }

    /// Creates an object in the collection of a path.
    pub fn post(&self, path: &str, object: &Value) -> Result<Value, StatusError> {
        self.direct(Method::POST, path, "application/json", object)
    }

    /// Replaces an object, or makes it if it is not there: with a name at the end, as `kubectl replace` does.
    pub fn put(&self, path: &str, object: &Value) -> Result<Value, StatusError> {
        match self.direct(Method::PUT, path, "application/json", object) {
            Err(failure)
                if failure.code == 404
                    && path
                        .split('?')
                        .next()
                        .is_some_and(|path| named(path, object)) =>
            {
                let collection = path
                    .split('?')
                    .next()
                    .and_then(|path| path.rsplit_once('/'))
                    .map_or(path, |(collection, _)| collection);
                self.post(collection, object)
            }
            answer => answer,
        }
    }

    /// Patches an object by JSON merge.
    pub fn patch(&self, path: &str, patch: &Value) -> Result<Value, StatusError> {
        self.direct(Method::PATCH, path, "application/merge-patch+json", patch)
    }

    /// Deletes an object as a user does; for a pod with its grace, unless the query says `gracePeriodSeconds`.
    pub fn delete(&self, path: &str) -> Result<Value, StatusError> {
        self.direct(Method::DELETE, path, "application/json", &Value::Null)
    }

    /// Returns the items of a list by its path and query.
    pub fn list(&self, path: &str) -> Result<Vec<Value>, StatusError> {
        let mut list = self.get(path)?;
        Ok(list["items"]
            .as_array_mut()
            .map(std::mem::take)
            .unwrap_or_default())
    }

    /// Waits until an object is as wanted and returns it; none if that does not come to pass in time. The clock is the
    /// machine's, whatever the caller's runtime thinks of time.
    pub async fn wait(
        &self,
        path: &str,
        within: Duration,
        wanted: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Option<Value>> {
        let late = Arc::new(tokio::sync::Notify::new());
        let alarm = late.clone();
        let (cancel, cancelled) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            if cancelled.recv_timeout(within) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                alarm.notify_one();
            }
        });
        let pulse = self.state.store().pulse();
        loop {
            let change = pulse.notified();
            let object = self.get(path).ok();
            if wanted(object.as_ref()) {
                drop(cancel);
                return Some(object);
            }
            tokio::select! {
                () = change => {}
                () = late.notified() => return None,
            }
        }
    }

    fn direct(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: &Value,
    ) -> Result<Value, StatusError> {
        let uri: Uri = path
            .parse()
            .map_err(|_| StatusError::bad_request(format!("{path} is no path")))?;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        let mut call =
            RequestInfo::parse(&method, &uri, &headers).ok_or_else(StatusError::no_such_path)?;
        call.user = UserInfo {
            name: "test".to_string(),
            groups: vec!["system:masters".to_string()],
            ..UserInfo::default()
        };
        if !body.is_null() {
            call.body = serde_json::to_vec(body)
                .expect("a JSON value can be written")
                .into();
        }
        verbs::carry_out(&self.state, &call).map(|(_, value)| value)
    }
}

fn named(path: &str, object: &Value) -> bool {
    object["metadata"]["name"]
        .as_str()
        .is_some_and(|name| path.ends_with(&format!("/{name}")))
}
