//! The storage plugin for what is on the node itself.

/// Who this plugin is.
pub fn info(version: &'static str) -> sdk::Info {
    sdk::Info {
        name: "storage-local",
        version,
        kind: sdk::Kind::Storage,
        capabilities: vec![],
    }
}

/// Makes the service.
pub async fn build(setup: sdk::Setup) -> Result<sdk::Routes, sdk::Refusal> {
    setup.health.healthy();
    Ok(sdk::Routes::default())
}
