//! The page in a real browser, before a server that notes what it asks for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::browse;

macro_rules! page_file {
    ($name:literal) => {
        include_str!(concat!(
            "../../../../actors/agent/src/endpoints/admin/console/",
            $name
        ))
    };
}

/// A page's server.
#[derive(Clone)]
struct PageServer {
    address: String,
    /// What comes before the page's own script.
    prelude: Arc<str>,
    answers: Arc<BTreeMap<&'static str, Value>>,
    /// Paths that were asked for.
    asked: Arc<Mutex<Vec<String>>>,
}

impl PageServer {
    async fn start(prelude: &str, answers: &[(&'static str, Value)]) -> PageServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = PageServer {
            address: listener.local_addr().unwrap().to_string(),
            prelude: prelude.into(),
            answers: Arc::new(answers.iter().cloned().collect()),
            asked: Arc::default(),
        };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((browser, _)) = listener.accept().await {
                let serving = serving.clone();
                tokio::spawn(async move { serving.answer(browser).await });
            }
        });
        server
    }

    /// Answers one request. A browser may connect and ask for nothing.
    async fn answer(&self, mut browser: TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match browser.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8(head).unwrap();
        let path = head.split(' ').nth(1).unwrap();
        self.asked.lock().unwrap().push(path.to_owned());
        let (kind, body) = match path {
            "/console/" => ("text/html", page_file!("page.html").to_owned()),
            "/console/page.css" => ("text/css", page_file!("page.css").to_owned()),
            "/console/page.js" => {
                let script = format!("{}{}", self.prelude, page_file!("page.js"));
                ("text/javascript", script)
            }
            _ => {
                let answer = self.answers.get(path).cloned();
                ("application/json", answer.unwrap_or_default().to_string())
            }
        };
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        browser.write_all(answer.as_bytes()).await.unwrap();
    }

    async fn seen(&self, place: &str, seconds: u32) -> String {
        browse(
            &format!("http://{}/console/#{place}", self.address),
            seconds,
        )
        .await
    }

    /// What was asked for before, between and after these paths.
    fn asked_around(&self, from: &str, to: &str) -> [Vec<String>; 3] {
        let asked = self.asked.lock().unwrap().clone();
        let position = |path: &str| asked.iter().position(|asked| asked == path);
        let (from, to) = (position(from).unwrap(), position(to).unwrap());
        [&asked[..from], &asked[from + 1..to], &asked[to + 1..]].map(<[String]>::to_vec)
    }
}

/// A script with which the page's tab is hidden from then on, by `turn(true)`, and shown again after nine seconds; each is
/// noted at the server. A headless browser hides no tab itself.
fn hidden_from(begin: &str) -> String {
    format!(
        r#"{{
            const turn = async (hidden) => {{
                if (!hidden) await fetch("shown");
                Object.defineProperty(document, "hidden", {{ value: hidden, configurable: true }});
                document.dispatchEvent(new Event("visibilitychange"));
                if (hidden) await fetch("hidden");
            }};
            {begin};
            setTimeout(turn, 9000, false);
        }}
        "#
    )
}

fn answers() -> [(&'static str, Value); 4] {
    let psi = |share: f64| json!({ "total": 7, "avg10": share, "avg60": 0, "avg300": 0 });
    let summary = json!({ "node": {
        "nodeName": "edge", "cpu": {}, "memory": {}, "io": { "psi": { "some": psi(2.5), "full": psi(1.5) } },
    }});
    [
        ("/console/version", json!({ "version": "1" })),
        ("/console/pods", json!([])),
        ("/console/tree", json!({ "id": "oxlet", "children": [] })),
        ("/stats/summary", summary),
    ]
}

#[tokio::test]
async fn page_asks_for_nothing_while_its_tab_is_hidden_and_goes_on_when_it_is_shown() {
    let answers = answers();
    let views = |asked: &[String]| -> Vec<String> {
        let views = asked.iter().filter(|path| *path != "/console/version");
        views.cloned().collect()
    };
    let looked = |asked: &[String]| asked.iter().filter(|path| *path == "/console/pods").count();

    let server = PageServer::start(&hidden_from("setTimeout(turn, 3000, true)"), &answers).await;
    server.seen("pods", 14).await;
    let [before, meanwhile, after] = server.asked_around("/console/hidden", "/console/shown");
    assert_eq!(looked(&before), 2, "it looks every two seconds: {before:?}");
    assert_eq!(views(&meanwhile), [""; 0], "hidden for six seconds");
    assert!(looked(&after) >= 2, "{after:?}");

    let server = PageServer::start(&hidden_from("turn(true)"), &answers).await;
    server.seen("pods", 14).await;
    let [_, meanwhile, after] = server.asked_around("/console/hidden", "/console/shown");
    assert_eq!(
        views(&meanwhile),
        [""; 0],
        "opened in a tab that nobody sees"
    );
    assert!(looked(&after) >= 2, "{after:?}");
}

#[tokio::test]
async fn page_shows_stalls_of_input_and_output_every_ten_seconds_and_none_that_are_not_measured() {
    let server = PageServer::start("", &answers()).await;
    let page = server.seen("pressure", 14).await;
    let asked = server.asked.lock().unwrap().clone();
    let measured = asked.iter().filter(|path| *path == "/stats/summary");
    assert_eq!(measured.count(), 2, "each measures every pod: {asked:?}");
    for row in [
        r#"<td>io</td><td>some</td><td class="number">2.5</td>"#,
        r#"<td>io</td><td>full</td><td class="number">1.5</td>"#,
    ] {
        assert!(page.contains(row), "{page}");
    }
    assert!(!page.contains("<td>cpu</td>"), "{page}");
}
