//! The programs that the agent starts from its own folder: a package that is installed in half is told at once.

use std::path::Path;

use config::{NodeConfig, PluginStart};

use super::plugins::CONFINE;

/// Checks that the programs beside the agent's own are there.
///
/// A plugin of another vendor, which has a path of its own, is not asked for: the node can be without it for a while.
///
/// # Errors
/// Which program is missing.
pub(super) fn check(config: &NodeConfig) -> Result<(), String> {
    let folder = &config.program_folder;
    let commands = config.plugins.plugins.iter();
    let shipped = commands.filter_map(|plugin| match &plugin.start {
        PluginStart::Managed { command, .. } => Some(command.as_path()),
        PluginStart::External { .. } => None,
    });
    let own = folder.join(CONFINE);
    let mut programs = shipped
        .filter(|command| command.parent() == Some(folder.as_path()))
        .chain([own.as_path()]);
    match programs.find(|program| !program.is_file()) {
        Some(missing) => Err(incomplete(missing)),
        None => Ok(()),
    }
}

fn incomplete(missing: &Path) -> String {
    let missing = missing.display();
    format!("{missing} is not there: the package is not installed as a whole")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::settings::testing::load;

    #[test]
    fn the_programs_that_ship_are_there_before_the_agent_starts() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = load("");
        for plugin in &mut config.plugins.plugins {
            if let PluginStart::Managed { command, .. } = &mut plugin.start {
                *command = folder.path().join("oxlet-plugins");
            }
        }
        config.program_folder = folder.path().to_owned();
        for missing in ["oxlet-plugins", "oxlet-confine"] {
            let program = folder.path().join(missing);
            assert_eq!(check(&config), Err(incomplete(&program)));
            fs::write(program, "").unwrap();
        }
        assert_eq!(check(&config), Ok(()));
        // Another vendor's may come later.
        if let PluginStart::Managed { command, .. } = &mut config.plugins.plugins[0].start {
            *command = "/opt/vendor/plugin".into();
        }
        assert_eq!(check(&config), Ok(()));
    }
}
