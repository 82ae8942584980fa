//! Reads containerd's events. Pure.

use prost::Message;
use prost_types::Timestamp;
use proto::containerd::{ContainerChange, Envelope, TaskExit, TaskStart};

/// containerd's own limit for identifiers.
const LONGEST_ID: usize = 76;

const CREATED: &str = "/containers/create";
const STARTED: &str = "/tasks/start";
const EXITED: &str = "/tasks/exit";
const OUT_OF_MEMORY: &str = "/tasks/oom";
const DELETED: &str = "/containers/delete";
const TOPICS: [&str; 5] = [CREATED, STARTED, EXITED, OUT_OF_MEMORY, DELETED];

/// What happened to a container, in containerd's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerdEventKind {
    Created,
    Started,
    Exited(ContainerExit),
    OutOfMemory,
    Deleted,
}

/// How a container's own process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContainerExit {
    pub(crate) code: i32,
    /// Nanoseconds since the epoch, by containerd's clock.
    pub(crate) at: i64,
}

/// One of containerd's events about a container; a sandbox is one to containerd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerdEvent {
    pub(crate) container: String,
    pub(crate) what: ContainerdEventKind,
    /// Nanoseconds since the epoch, by containerd's clock.
    pub(crate) at: i64,
}

/// Why an event could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeEventError {
    #[error("event {topic:?} of containerd cannot be read")]
    Body {
        topic: &'static str,
        #[source]
        source: prost::DecodeError,
    },
    #[error(
        "event {topic:?} of containerd names a container with {length} bytes, expected at most {LONGEST_ID}"
    )]
    Id { topic: &'static str, length: usize },
}

/// Returns the filters that subscribe to the events read here, in this namespace.
pub(crate) fn filters(namespace: &str) -> Vec<String> {
    TOPICS
        .iter()
        .map(|topic| format!("namespace=={namespace},topic==\"{topic}\""))
        .collect()
}

/// Reads an envelope; nothing if it is not about a container's own process.
pub(crate) fn read(
    envelope: &Envelope,
    namespace: &str,
) -> Result<Option<ContainerdEvent>, DecodeEventError> {
    let topic = TOPICS.into_iter().find(|topic| *topic == envelope.topic);
    let (Some(topic), Some(event)) = (topic, envelope.event.as_ref()) else {
        return Ok(None);
    };
    if envelope.namespace != namespace {
        return Ok(None);
    }
    let at = nanoseconds(envelope.timestamp.as_ref());
    let unreadable = |source| DecodeEventError::Body { topic, source };
    let Some((container, what)) = body(topic, &event.value, at).map_err(unreadable)? else {
        return Ok(None);
    };
    match container.len() {
        0 => Ok(None),
        1..=LONGEST_ID => Ok(Some(ContainerdEvent {
            container,
            what,
            at,
        })),
        length => Err(DecodeEventError::Id { topic, length }),
    }
}

/// Reads the body of a topic's events: the container's id and what happened to it.
fn body(
    topic: &str,
    body: &[u8],
    at: i64,
) -> Result<Option<(String, ContainerdEventKind)>, prost::DecodeError> {
    Ok(Some(match topic {
        CREATED => (
            ContainerChange::decode(body)?.id,
            ContainerdEventKind::Created,
        ),
        DELETED => (
            ContainerChange::decode(body)?.id,
            ContainerdEventKind::Deleted,
        ),
        STARTED => (
            TaskStart::decode(body)?.container_id,
            ContainerdEventKind::Started,
        ),
        // It holds the container's id in the same field as /tasks/start.
        OUT_OF_MEMORY => (
            TaskStart::decode(body)?.container_id,
            ContainerdEventKind::OutOfMemory,
        ),
        EXITED => {
            let exit = TaskExit::decode(body)?;
            // The end of an exec is an exit too; an event without a process id is the container's.
            if !exit.id.is_empty() && exit.id != exit.container_id {
                return Ok(None);
            }
            let ended = ContainerExit {
                // As containerd's CRI part converts it.
                code: exit.exit_status.cast_signed(),
                at: Some(nanoseconds(exit.exited_at.as_ref()))
                    .filter(|at| *at > 0)
                    .unwrap_or(at),
            };
            (exit.container_id, ContainerdEventKind::Exited(ended))
        }
        _ => return Ok(None),
    }))
}

fn nanoseconds(at: Option<&Timestamp>) -> i64 {
    at.map_or(0, |at| {
        at.seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::from(at.nanos))
    })
}

#[cfg(test)]
mod tests {
    use prost_types::Any;

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
            (
                "/containers/create",
                change.clone(),
                ContainerdEventKind::Created,
            ),
            ("/tasks/start", start.clone(), ContainerdEventKind::Started),
            (
                "/tasks/exit",
                exit("a", "a"),
                ContainerdEventKind::Exited(ContainerExit {
                    code: 0,
                    at: 2_000_000_003,
                }),
            ),
            ("/tasks/oom", start, ContainerdEventKind::OutOfMemory),
            ("/containers/delete", change, ContainerdEventKind::Deleted),
        ] {
            let read = read(&envelope(topic, body), "k8s.io").unwrap();
            assert_eq!(
                read,
                Some(ContainerdEvent {
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

    #[test]
    fn an_exit_has_its_own_time_and_code() {
        let at = |seconds, nanos| Some(Timestamp { seconds, nanos });
        // Of year 1, as Go writes a time that was never set, and of a peer that means harm.
        let year_one = at(-62_135_596_800, 0);
        let hostile = at(i64::MAX, i32::MAX);
        for (exited_at, exit_status, code, expected) in [
            (at(1, 7), 137, 137, 1_000_000_007),
            (None, 0, 0, 2_000_000_003),
            (year_one, 255, 255, 2_000_000_003),
            (hostile, u32::MAX, -1, i64::MAX),
        ] {
            let exit = TaskExit {
                container_id: "a".to_owned(),
                exit_status,
                exited_at,
                ..Default::default()
            };
            let read = read(&envelope("/tasks/exit", exit.encode_to_vec()), "k8s.io").unwrap();
            let what = read.map(|event| event.what);
            assert_eq!(
                what,
                Some(ContainerdEventKind::Exited(ContainerExit {
                    code,
                    at: expected
                }))
            );
        }
    }

    #[test]
    fn an_id_longer_than_containerd_allows_is_an_error_that_does_not_repeat_it() {
        let id = "x".repeat(3 << 20);
        let error = read(&envelope("/tasks/exit", exit(&id, &id)), "k8s.io").unwrap_err();
        assert_eq!(
            error.to_string(),
            "event \"/tasks/exit\" of containerd names a container with 3145728 bytes, expected at most 76"
        );
    }

    #[test]
    fn no_bytes_make_reading_panic() {
        let valid = exit("abc", "abc");
        for topic in TOPICS {
            for length in 0..valid.len() {
                for byte in [0x00, 0x08, 0x7f, 0x80, 0xff] {
                    let mut body = valid.clone();
                    body[length] = byte;
                    drop(read(&envelope(topic, body), "k8s.io"));
                    drop(read(&envelope(topic, valid[..length].to_vec()), "k8s.io"));
                }
            }
        }
        let bodiless = Envelope {
            event: None,
            ..envelope("/tasks/exit", Vec::new())
        };
        assert_eq!(read(&bodiless, "k8s.io").unwrap(), None);
    }
}
