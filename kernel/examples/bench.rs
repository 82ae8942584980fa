//! The kernel's own numbers, as one JSON object: what an actor weighs, what a message costs.
//!
//! `cargo run --release -p kernel --example bench`

use std::time::Duration;

use kernel::{Actor, Addr, ChildSpec, Context, Exit, Intensity, Reply, Supervisor, mailbox};

const IDLE: usize = 10_000;
const TELLS: u64 = 2_000_000;
const ASKS: usize = 200_000;
const WATCHED: usize = 1_000;
const WATCH_FOR: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, strum::IntoStaticStr)]
enum Msg {
    /// Tells itself one less, and answers at zero.
    Count { left: u64, reply: Reply<()> },
    /// Sends an empty reply.
    Ask { reply: Reply<()> },
}

struct Idler;

impl Actor for Idler {
    type Msg = Msg;
    type Snapshot = ();

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Count { left: 0, reply } | Msg::Ask { reply } => reply.send(()),
            Msg::Count { left, reply } => ctx.addr().tell(Msg::Count {
                left: left - 1,
                reply,
            })?,
        }
        Ok(())
    }

    fn snapshot(&self) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let report = kernel::system::run(measure())??;
    #[allow(clippy::print_stdout, reason = "the report is this program's output")]
    {
        println!("{report:#}");
    }
    Ok(())
}

async fn measure() -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let root = Supervisor::root("root", Intensity::UNLIMITED);
    let actor = spawn(&root, "messages");
    let tells = tells_a_second(&actor).await?;
    let (median, p99) = ask_latency(&actor).await?;
    let idle_cpu = idle_cpu(&root).await?;
    let bytes = bytes_an_actor(&root).await?;
    Ok(serde_json::json!({
        "bytes_per_idle_actor": bytes,
        "tells_per_second": tells,
        "ask_p50_ns": median.as_nanos(),
        "ask_p99_ns": p99.as_nanos(),
        "cpu_percent_1000_idle_actors": idle_cpu,
    }))
}

fn spawn(group: &Supervisor, id: &str) -> Addr<Msg> {
    let (addr, port) = mailbox(16);
    group.spawn(ChildSpec::permanent(id), port, || Idler);
    addr
}

async fn tells_a_second(actor: &Addr<Msg>) -> Result<f64, Box<dyn std::error::Error>> {
    let before = kernel::now();
    actor
        .ask(PATIENCE, |reply| Msg::Count { left: TELLS, reply })
        .await?;
    let rate = f64::from(u32::try_from(TELLS)?) / (kernel::now() - before).as_secs_f64();
    Ok(rate.round())
}

async fn ask_latency(
    actor: &Addr<Msg>,
) -> Result<(Duration, Duration), Box<dyn std::error::Error>> {
    let mut took = Vec::with_capacity(ASKS);
    for _ in 0..ASKS {
        let before = kernel::now();
        actor.ask(PATIENCE, |reply| Msg::Ask { reply }).await?;
        took.push(kernel::now() - before);
    }
    took.sort_unstable();
    Ok((took[ASKS / 2], took[ASKS / 100 * 99]))
}

async fn idle_cpu(root: &Supervisor) -> Result<f64, Box<dyn std::error::Error>> {
    let group = root.supervisor("watched", kernel::Strategy::OneForOne, Intensity::UNLIMITED);
    let _addrs: Vec<_> = (0..WATCHED)
        .map(|n| spawn(&group, &format!("idler-{n}")))
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = cpu_time()?;
    tokio::time::sleep(WATCH_FOR).await;
    let used = cpu_time()?.saturating_sub(before);
    group.shutdown().await;
    Ok(used.as_secs_f64() / WATCH_FOR.as_secs_f64() * 100.0)
}

async fn bytes_an_actor(root: &Supervisor) -> Result<usize, Box<dyn std::error::Error>> {
    let before = anonymous_bytes()?;
    let addrs: Vec<_> = (0..IDLE)
        .map(|n| spawn(root, &format!("actor-{n}")))
        .collect();
    for addr in &addrs {
        addr.ask(PATIENCE, |reply| Msg::Ask { reply }).await?;
    }
    Ok((anonymous_bytes()? - before) / IDLE)
}

/// All threads' time on a processor.
fn cpu_time() -> Result<Duration, Box<dyn std::error::Error>> {
    let mut total = Duration::ZERO;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let nanos = text.split_whitespace().next().ok_or("schedstat is empty")?;
        total += Duration::from_nanos(nanos.parse()?);
    }
    Ok(total)
}

fn anonymous_bytes() -> Result<usize, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line
        .ok_or("no RssAnon in /proc/self/status")?
        .trim()
        .trim_end_matches(" kB");
    Ok(kib.parse::<usize>()? * 1024)
}
