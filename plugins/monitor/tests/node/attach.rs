//! Clients that join a container's streams.

use monitor::{Exit, Input, MonitorError, Output, RefusalKind, Session, Size};

use crate::rig::{Box, Rig, read_until, sh, with_each_runtime, within};

impl Rig {
    /// Attaches before the start, so that nothing is missed.
    pub(crate) async fn create_and_attach(&self, container: &Box) -> Session {
        self.create(container).await;
        let session = self
            .attach(container.id, container.stdin != Input::Closed)
            .await;
        within(self.monitor.start(container.id)).await.unwrap();
        session
    }
}

#[tokio::test]
async fn several_clients_hear_the_same_and_then_the_end() {
    let rig = Rig::new().await;
    let mut echo = sh("echo", "read line; echo $line; exit 8");
    echo.stdin = Input::Open;
    let mut first = rig.create_and_attach(&echo).await;
    let mut second = rig.attach("echo", false).await;
    within(first.writer().input(b"hello\n")).await.unwrap();
    for session in [&mut first, &mut second] {
        read_until(session, "hello").await;
        let Output::ContainerEnded(status) = within(session.next()).await.unwrap() else {
            panic!()
        };
        assert_eq!(status.end.unwrap().exit, Exit::Code(8));
    }
    rig.end().await;
}

#[tokio::test]
async fn input_that_is_for_one_client_ends_when_that_leaves() {
    with_each_runtime(|rig| async move {
        let mut once = sh("once", "cat; exit 5");
        once.stdin = Input::Once;
        let mut session = rig.create_and_attach(&once).await;
        within(session.writer().input(b"all\n")).await.unwrap();
        read_until(&mut session, "all").await;
        drop(session);
        let end = within(rig.monitor.wait("once")).await.unwrap().end.unwrap();
        assert_eq!(end.exit, Exit::Code(5));
        rig.end().await;
    })
    .await;
}

#[tokio::test]
async fn input_that_stays_open_goes_on_with_the_next_client() {
    let rig = Rig::new().await;
    let mut open = sh("open", "while read line; do echo $line; done");
    open.stdin = Input::Open;
    rig.run(&open).await;
    for word in ["first", "second"] {
        let mut session = rig.attach("open", true).await;
        within(session.writer().input(format!("{word}\n").as_bytes()))
            .await
            .unwrap();
        read_until(&mut session, word).await;
    }
    within(rig.monitor.close_stdin("open")).await.unwrap();
    within(rig.monitor.wait("open")).await.unwrap();
    rig.end().await;
}

#[tokio::test]
async fn a_slow_client_is_dropped_with_a_word_and_the_log_is_whole() {
    let rig = Rig::new().await;
    let mut slow = rig.create_and_attach(&sh("fast", "seq 200000")).await;
    within(rig.monitor.wait("fast")).await.unwrap();
    assert_eq!(rig.log("fast").lines().count(), 200_000);
    let refusal = loop {
        match within(slow.next()).await {
            Ok(Output::Stdout(_)) => {}
            Err(MonitorError::Refused(refusal)) => break refusal,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refusal.kind, RefusalKind::Full);
    rig.end().await;
}

#[tokio::test]
async fn a_containers_terminal_is_attached_to_and_resized() {
    with_each_runtime(|rig| async move {
        let mut shell = sh("shell", "read a; stty size; exit 3");
        shell.terminal = true;
        shell.stdin = Input::Open;
        let mut session = rig.create_and_attach(&shell).await;
        within(rig.monitor.resize(
            "shell",
            Size {
                columns: 77,
                rows: 22,
            },
        ))
        .await
        .unwrap();
        within(session.writer().input(b"\n")).await.unwrap();
        read_until(&mut session, "22 77").await;
        let end = within(rig.monitor.wait("shell"))
            .await
            .unwrap()
            .end
            .unwrap();
        assert_eq!(end.exit, Exit::Code(3));
        assert!(rig.log("shell").contains("22 77"));
        rig.end().await;
    })
    .await;
}
