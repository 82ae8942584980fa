//! What keys do, and what is drawn.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

use super::content::Line;
use super::*;

fn press(console: &mut Console, code: KeyCode) -> Step {
    console.handle(&Event::Key(KeyEvent::from(code)))
}

fn pod_place() -> Place {
    Place::Pod {
        namespace: "default".into(),
        name: "web".into(),
    }
}

fn log_place() -> Place {
    Place::Log {
        namespace: "default".into(),
        name: "web".into(),
        container: "app".into(),
    }
}

fn content(place: Place, lines: &[(&str, Option<Place>)]) -> Content {
    let lines = lines.iter().map(|(text, leads_to)| Line {
        text: (*text).to_owned(),
        leads_to: leads_to.clone(),
    });
    Content {
        place: Some(place),
        head: "NAME".into(),
        lines: lines.collect(),
    }
}

fn drawn(console: &mut Console) -> String {
    let mut terminal = Terminal::new(TestBackend::new(80, 8)).unwrap();
    terminal.draw(|frame| screen::draw(frame, console)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn way_leads_from_the_pods_to_one_to_its_log_and_back() {
    let mut console = Console::default();
    console.see(Ok(content(
        Place::Tab(Tab::Pods),
        &[("other", None), ("web", Some(pod_place()))],
    )));
    assert_eq!(
        press(&mut console, KeyCode::Enter),
        Step::Stay,
        "leads nowhere"
    );
    assert_eq!(press(&mut console, KeyCode::Down), Step::Stay);
    assert_eq!(press(&mut console, KeyCode::Enter), Step::Look);
    assert_eq!(console.place(), &pod_place());
    console.see(Ok(content(pod_place(), &[("app", Some(log_place()))])));
    assert_eq!(press(&mut console, KeyCode::Enter), Step::Look);
    assert_eq!(console.place(), &log_place());
    assert_eq!(press(&mut console, KeyCode::Esc), Step::Look);
    assert_eq!(console.place(), &pod_place());
    press(&mut console, KeyCode::Esc);
    assert_eq!(
        press(&mut console, KeyCode::Esc),
        Step::Stay,
        "the first place stays"
    );
    assert_eq!(console.place(), &Place::Tab(Tab::Pods));
}

#[test]
fn tabs_are_gone_round_and_named_by_their_numbers() {
    let mut console = Console::default();
    let mut seen = Vec::new();
    for _ in 0..7 {
        seen.push(console.tab());
        press(&mut console, KeyCode::Right);
    }
    assert_eq!(console.tab(), Tab::Pods);
    assert_eq!(seen.last(), Some(&Tab::Events));
    press(&mut console, KeyCode::Left);
    assert_eq!(console.tab(), Tab::Events);
    press(&mut console, KeyCode::Char('3'));
    assert_eq!(console.tab(), Tab::Tree);
    assert_eq!(press(&mut console, KeyCode::Char('9')), Step::Stay);
    assert_eq!(press(&mut console, KeyCode::Char('q')), Step::Leave);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(console.handle(&Event::Key(interrupt)), Step::Leave);
}

#[test]
fn selection_stays_within_what_is_there() {
    let mut console = Console::default();
    press(&mut console, KeyCode::Down);
    assert_eq!(console.selected, 0, "of nothing");
    let three = [("a", None), ("b", None), ("c", None)];
    console.see(Ok(content(Place::Tab(Tab::Pods), &three)));
    press(&mut console, KeyCode::End);
    assert_eq!(console.selected, 2);
    console.see(Ok(content(Place::Tab(Tab::Pods), &three[..1])));
    assert_eq!(console.selected, 0, "the others are gone");
}

#[test]
fn log_is_shown_from_its_end_and_followed_unless_somebody_reads_further_up() {
    let mut console = Console {
        way: vec![Place::Tab(Tab::Pods), log_place()],
        ..Console::default()
    };
    let lines: Vec<(&str, Option<Place>)> = ["1", "2", "3", "4"].map(|text| (text, None)).into();
    console.see(Ok(content(log_place(), &lines[..2])));
    assert_eq!(console.selected, 1);
    console.see(Ok(content(log_place(), &lines[..3])));
    assert_eq!(console.selected, 2);
    press(&mut console, KeyCode::Up);
    console.see(Ok(content(log_place(), &lines)));
    assert_eq!(console.selected, 1);
}

#[test]
fn agent_that_is_away_is_told_and_what_was_seen_stays() {
    let mut console = Console::default();
    console.see(Ok(content(Place::Tab(Tab::Pods), &[("web", None)])));
    console.see(Err(AgentError::Refused {
        sentence: "no agent answers".into(),
    }));
    let shown = drawn(&mut console);
    assert!(
        shown.contains("no agent answers") && shown.contains("web"),
        "{shown}"
    );
    console.see(Ok(content(Place::Tab(Tab::Pods), &[("web", None)])));
    assert!(!drawn(&mut console).contains("no agent answers"));
}

#[test]
fn smallest_terminal_breaks_nothing() {
    let mut console = Console::default();
    console.see(Ok(content(Place::Tab(Tab::Pods), &[("web", None)])));
    for (width, height) in [(1, 1), (0, 0), (300, 2)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| screen::draw(frame, &mut console))
            .unwrap();
    }
}

/// An agent that answers on a socket, a connection a question.
async fn agent_that_answers(answers: &[(&str, String)], test: impl AsyncFnOnce(AgentClient)) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("admin.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let serve = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = vec![0; 4096];
            let length = tokio::io::AsyncReadExt::read(&mut stream, &mut asked)
                .await
                .unwrap();
            let asked = String::from_utf8_lossy(&asked[..length]);
            let path = asked.split(' ').nth(1).unwrap();
            let found = answers.iter().find(|(wanted, _)| *wanted == path);
            let (_, body) = found.unwrap_or_else(|| panic!("asked for {path}"));
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            tokio::io::AsyncWriteExt::write_all(&mut stream, answer.as_bytes())
                .await
                .unwrap();
        }
    };
    tokio::select! {
        () = test(AgentClient::at(&socket)) => {}
        () = serve => {}
    }
}

#[tokio::test]
async fn rows_lead_to_the_pod_and_its_containers_to_their_logs() {
    let pods = json!([{
        "namespace": "default", "name": "web", "uid": "u", "phase": "Running", "status": "Running", "ready": 1,
        "containers": 1, "restarts": 0, "started": null, "ip": "", "stage": "Syncing",
    }]);
    let why = json!({
        "pod": "default/web", "stage": "Syncing", "runtime": "fake", "phase": "Running",
        "containers": [["init", "ended"], ["app", "runs"]], "lines": [],
    });
    let log = "one\n\u{1b}[2Jtwo\n";
    let answers = [
        ("/pods", pods.to_string()),
        ("/why/default/web", why.to_string()),
        (
            "/containerLogs/default/web/app?tailLines=500",
            log.to_owned(),
        ),
    ];
    agent_that_answers(&answers, async |agent| {
        let seen = look(&agent, Place::Tab(Tab::Pods)).await.unwrap();
        assert!(seen.head.starts_with("NAMESPACE"), "{}", seen.head);
        assert_eq!(seen.lines[0].leads_to, Some(pod_place()));
        let seen = look(&agent, pod_place()).await.unwrap();
        let row = seen
            .lines
            .iter()
            .find(|line| line.text.starts_with("app"))
            .unwrap();
        assert_eq!(row.leads_to, Some(log_place()));
        let leads = seen.lines.iter().filter(|line| line.leads_to.is_some());
        assert_eq!(leads.count(), 2);
        let seen = look(&agent, log_place()).await.unwrap();
        let lines: Vec<&str> = seen.lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(lines, ["one", "·[2Jtwo"], "no command to the terminal");
    })
    .await;
}

#[tokio::test]
async fn images_are_those_that_come_and_those_that_are_there() {
    let pull = json!({
        "image": "r/new:1", "state": "Pulling", "pod": "default/web", "purpose": "app",
        "since": "2026-01-01T00:00:00Z", "attempt": 1, "position": null, "until": null, "last_error": null,
    });
    let row = json!({ "names": ["r/app:1", "r/app:2"], "id": "sha256:1", "bytes": 2048 });
    let answers = [
        ("/images", json!({ "limit": 1, "rows": [pull] }).to_string()),
        (
            "/images/present",
            json!({ "rows": [row], "left_out": 3 }).to_string(),
        ),
    ];
    agent_that_answers(&answers, async |agent| {
        let seen = look(&agent, Place::Tab(Tab::Images)).await.unwrap();
        let lines = seen.lines.iter().map(|line| line.text.split_whitespace());
        let lines: Vec<String> = lines
            .map(|words| words.collect::<Vec<_>>().join(" "))
            .collect();
        assert!(
            lines[1].starts_with("r/new:1 pulling default/web"),
            "{lines:?}"
        );
        let there = [
            "",
            "IMAGE SIZE ID",
            "r/app:1, r/app:2 2Ki sha256:1",
            "and 3 more",
        ];
        assert_eq!(lines[2..], there);
    })
    .await;
}

#[test]
fn runtime_that_lists_no_images_hides_no_pull() {
    let pulls = json!({ "limit": 1, "rows": [] }).to_string();
    let sentence = "it cannot be told now: away".to_owned();
    let seen = content::images(pulls.as_bytes(), Err(AgentError::Refused { sentence })).unwrap();
    let lines: Vec<&str> = seen.lines.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(
        lines,
        [
            "no image is pulled or waits",
            "",
            "it cannot be told now: away"
        ]
    );
}

#[tokio::test]
async fn pressure_is_what_the_node_is_short_of_and_how_long_it_stalls() {
    let psi = json!({ "total": 1, "avg10": 1.5, "avg60": 0.5, "avg300": 0 });
    let unmeasured = json!({ "total": 0, "avg10": 0, "avg60": 0, "avg300": 0 });
    let summary = json!({ "node": {
        "nodeName": "edge",
        "cpu": { "usageNanoCores": 1_250_000_000_u64, "psi": { "some": psi, "full": psi } },
        "memory": {
            "workingSetBytes": 1_073_741_824_u64, "availableBytes": 2048,
            "psi": { "some": unmeasured, "full": unmeasured },
        },
        "io": { "psi": { "some": unmeasured, "full": psi } },
        "systemContainers": [{ "name": "pods", "cpu": { "usageNanoCores": 5_000_000 }, "memory": {} }],
    }});
    let actor = json!({
        "id": "eviction", "path": "n/eviction", "kind": "Actor", "state": "Running", "restarts": 0,
        "mailbox": { "len": 0, "capacity": 1, "overloaded": 0 }, "handled": 0, "busy_with": null, "last_exit": null,
        "snapshot": { "pressures": ["memory.available"] }, "children": [],
    });
    let answers = [
        ("/stats/summary", summary.to_string()),
        ("/tree", actor.to_string()),
    ];
    agent_that_answers(&answers, async |agent| {
        let seen = look(&agent, Place::Tab(Tab::Pressure)).await.unwrap();
        let lines: Vec<Vec<&str>> = seen
            .lines
            .iter()
            .map(|line| line.text.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0].join(" "), "under pressure: memory.available");
        assert!(
            lines.contains(&vec!["edge", "1.250", "1Gi", "2Ki"]),
            "{lines:?}"
        );
        assert!(
            lines.contains(&vec!["pods", "0.005", "-", "-"]),
            "{lines:?}"
        );
        let stalls = lines
            .iter()
            .skip_while(|line| line.first() != Some(&"STALLS"));
        let stalls: Vec<String> = stalls.skip(1).map(|line| line.join(" ")).collect();
        let expected = [
            "cpu some 1.5 0.5 0",
            "cpu full 1.5 0.5 0",
            "io some 0 0 0",
            "io full 1.5 0.5 0",
        ];
        assert_eq!(stalls, expected, "of memory none are measured");
    })
    .await;
}
