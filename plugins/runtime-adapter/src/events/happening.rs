//! Reads containerd's events. Pure.

use prost::Message;
use proto::containerd::{ContainerChange, Envelope, TaskExit, TaskStart};

/// What happened to a container, in containerd's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Created,
    Started,
    Exited,
    OutOfMemory,
    Deleted,
}

/// One of containerd's events about a container; a sandbox is one to containerd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Happening {
    pub(crate) container: String,
    pub(crate) what: What,
    /// Nanoseconds since the epoch, by containerd's clock.
    pub(crate) at: i64,
}

/// Why an event could not be read.
#[derive(Debug, thiserror::Error)]
#[error("event {topic:?} of containerd cannot be read")]
pub(crate) struct Unreadable {
    topic: String,
    #[source]
    source: prost::DecodeError,
}

const TOPICS: [(&str, What); 5] = [
    ("/containers/create", What::Created),
    ("/tasks/start", What::Started),
    ("/tasks/exit", What::Exited),
    ("/tasks/oom", What::OutOfMemory),
    ("/containers/delete", What::Deleted),
];

/// Returns the filters that subscribe to the events read here, in this namespace.
pub(crate) fn filters(namespace: &str) -> Vec<String> {
    TOPICS
        .iter()
        .map(|(topic, _)| format!("namespace=={namespace},topic==\"{topic}\""))
        .collect()
}

/// Reads an envelope; nothing if it is not about a container's own process.
pub(crate) fn read(envelope: &Envelope, namespace: &str) -> Result<Option<Happening>, Unreadable> {
    let found = TOPICS.iter().find(|(topic, _)| *topic == envelope.topic);
    let (Some((_, what)), Some(event)) = (found, envelope.event.as_ref()) else {
        return Ok(None);
    };
    if envelope.namespace != namespace {
        return Ok(None);
    }
    let body = event.value.as_slice();
    let unreadable = |source| Unreadable {
        topic: envelope.topic.clone(),
        source,
    };
    let container = match what {
        What::Exited => {
            let exit = TaskExit::decode(body).map_err(unreadable)?;
            // The end of an exec is an exit too; an event without a process id is the container's.
            if !exit.id.is_empty() && exit.id != exit.container_id {
                return Ok(None);
            }
            exit.container_id
        }
        // /tasks/oom holds the container's id in the same field as /tasks/start.
        What::Started | What::OutOfMemory => {
            TaskStart::decode(body).map_err(unreadable)?.container_id
        }
        What::Created | What::Deleted => ContainerChange::decode(body).map_err(unreadable)?.id,
    };
    if container.is_empty() {
        return Ok(None);
    }
    let at = envelope.timestamp.as_ref().map_or(0, |at| {
        at.seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::from(at.nanos))
    });
    Ok(Some(Happening {
        container,
        what: *what,
        at,
    }))
}

#[cfg(test)]
mod tests {
    use prost_types::{Any, Timestamp};

    use super::*;

    fn envelope(topic: &str, body: Vec<u8>) -> Envelope {
        Envelope {
            timestamp: Some(Timestamp {
                seconds: 2,
                nanos: 3,
            }),
            namespace: "k8s.io".to_owned(),
            topic: topic.to_owned(),
            event: Some(Any {
                type_url: String::new(),
                value: body,
            }),
        }
    }

    fn exit(container: &str, process: &str) -> Vec<u8> {
        TaskExit {
            container_id: container.to_owned(),
            id: process.to_owned(),
            ..Default::default()
        }
        .encode_to_vec()
    }

    #[test]
    fn each_topic_is_read_by_its_own_body() {
        let start = TaskStart {
            container_id: "a".to_owned(),
            pid: 7,
        }
        .encode_to_vec();
        let change = ContainerChange { id: "a".to_owned() }.encode_to_vec();
        for (topic, body, what) in [
            ("/containers/create", change.clone(), What::Created),
            ("/tasks/start", start.clone(), What::Started),
            ("/tasks/exit", exit("a", "a"), What::Exited),
            ("/tasks/oom", start, What::OutOfMemory),
            ("/containers/delete", change, What::Deleted),
        ] {
            let read = read(&envelope(topic, body), "k8s.io").unwrap();
            assert_eq!(
                read,
                Some(Happening {
                    container: "a".to_owned(),
                    what,
                    at: 2_000_000_003
                }),
                "{topic}"
            );
        }
    }

    #[test]
    fn the_end_of_an_exec_is_not_the_end_of_its_container() {
        assert_eq!(
            read(&envelope("/tasks/exit", exit("a", "exec-1")), "k8s.io").unwrap(),
            None
        );
    }

    #[test]
    fn other_topics_and_namespaces_are_not_read() {
        assert_eq!(
            read(&envelope("/tasks/exec-started", exit("a", "a")), "k8s.io").unwrap(),
            None
        );
        assert_eq!(
            read(&envelope("/tasks/exit", exit("a", "a")), "moby").unwrap(),
            None
        );
        assert_eq!(
            read(&envelope("/tasks/exit", exit("", "")), "k8s.io").unwrap(),
            None
        );
    }

    #[test]
    fn a_damaged_event_is_an_error_that_names_its_topic() {
        let error = read(&envelope("/tasks/exit", vec![0x0a, 0xff]), "k8s.io").unwrap_err();
        assert_eq!(
            error.to_string(),
            "event \"/tasks/exit\" of containerd cannot be read"
        );
    }
}
