//! The storage plugin for CSI drivers.

/// Who this plugin is.
pub fn info(version: &'static str) -> sdk::Info {
    sdk::Info {
        name: "storage-csi",
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
