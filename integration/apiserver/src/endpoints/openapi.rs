//! The OpenAPI documents: as much as kubectl reads before it applies. They say that fields are checked by the server,
//! and no more: without schemas kubectl uses the types that it was built with.

use serde_json::{Value, json};

use crate::endpoints::answer::{Response, json_response, typed};
use crate::kinds::{self, Handling, Resource};

/// `swagger: "2.0"` and nothing else, in protobuf: the only form that kubectl takes of version 2.
const SECOND: &[u8] = b"\x0a\x032.0";

/// Returns the answer to a path of OpenAPI; none if it is not one.
pub(crate) fn document(path: &str, accept: &str) -> Option<Response> {
    match path {
        "/openapi/v2" if accept.contains("proto-openapi.spec.v2") => Some(typed(
            200,
            "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
            SECOND.to_vec(),
        )),
        "/openapi/v2" => Some(json_response(
            200,
            &json!({"swagger": "2.0", "info": info(), "paths": {}, "definitions": {}}),
        )),
        "/openapi/v3" => Some(json_response(200, &index())),
        _ => path
            .strip_prefix("/openapi/v3/")
            .and_then(third)
            .map(|document| json_response(200, &document)),
    }
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "v1.36.0"})
}

fn index() -> Value {
    let mut paths = serde_json::Map::new();
    for resource in kinds::ALL {
        let path = root(resource);
        paths.insert(
            path.clone(),
            json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash=1")}),
        );
    }
    json!({"paths": paths})
}

fn root(resource: &Resource) -> String {
    if resource.group.is_empty() {
        format!("api/{}", resource.version)
    } else {
        format!("apis/{}/{}", resource.group, resource.version)
    }
}

/// Returns the document of one group's version.
fn third(group_version: &str) -> Option<Value> {
    let mut paths = serde_json::Map::new();
    for resource in kinds::ALL
        .iter()
        .filter(|resource| root(resource) == group_version && resource.handling == Handling::Kept)
    {
        let space = if resource.namespaced {
            "namespaces/{namespace}/"
        } else {
            ""
        };
        let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation", "force"]
            .iter()
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
            .collect();
        let operation = |action: &str| {
            json!({"parameters": parameters, "responses": {"200": {"description": "OK"}}, "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": {"group": resource.group, "version": resource.version, "kind": resource.kind}})
        };
        let one = format!("/{group_version}/{space}{}/{{name}}", resource.plural);
        paths.insert(
            one,
            json!({"patch": operation("patch"), "put": operation("put")}),
        );
        paths.insert(
            format!("/{group_version}/{space}{}", resource.plural),
            json!({"post": operation("post")}),
        );
    }
    let known = kinds::ALL
        .iter()
        .any(|resource| root(resource) == group_version);
    known.then(|| json!({"openapi": "3.0.0", "info": info(), "paths": paths, "components": {"schemas": {}}}))
}
