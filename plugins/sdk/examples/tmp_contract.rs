use sdk::contract::runtime::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async {
            let r = run(Target {
                channel: sdk::testing::connect(std::path::Path::new(&a[1])),
                image: a[2].clone(),
                logs: "/tmp/ctd/logs".into(),
                network: Network::Pod,
                events: if a.len() > 3 {
                    Events::Reported
                } else {
                    Events::Absent
                },
            })
            .await;
            println!("{r}");
        });
}
