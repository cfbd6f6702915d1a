//! Settings in three layers: flags over environment over one TOML file, with every unknown key refused.

use std::path::{Path, PathBuf};

use serde::{Serialize, de::DeserializeOwned};
use toml::{Table, Value};

/// Largest settings file, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The settings cannot be used. The text names the file and, where it is known, the key and the line.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read {path}: {cause}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// The file is larger than a settings file may be.
    #[error("{path} is {bytes} bytes, over the {FILE_BYTES_MAX} that a settings file may have", path = path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// A key is unknown, or its value is of the wrong kind.
    #[error("{path}: {cause}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and key.
        cause: Box<toml::de::Error>,
    },
    /// Flags and file do not fit together.
    #[error("settings do not fit together: {0}")]
    Mixed(String),
}

/// Gives each long flag of a command an environment variable, `<prefix>_<FLAG>`, unless it names one itself.
pub fn with_environment(command: clap::Command, prefix: &str) -> clap::Command {
    command.mut_args(|argument| {
        let Some(long) = argument.get_long().filter(|long| !matches!(*long, "help" | "version")) else {
            return argument;
        };
        if argument.get_env().is_some() {
            return argument;
        }
        // Clap wants names that live as long as the program; there are as many as flags.
        let name = format!("{prefix}_{}", long.to_uppercase().replace('-', "_"));
        argument.env(&*Box::leak(name.into_boxed_str())).hide_env_values(true)
    })
}

/// Reads the file below the flags. The shape of `T` is that of the file: sections are tables, absent flags are not serialised.
pub fn layer<T: Serialize + DeserializeOwned>(flags: T, file: Option<&Path>) -> Result<T, SettingsError> {
    let Some(path) = file else { return Ok(flags) };
    let text = read(path)?;
    let malformed = |cause| SettingsError::Malformed { path: path.to_owned(), cause: Box::new(cause) };
    // Deserialising the text itself first gives errors with line and column.
    toml::from_str::<T>(&text).map_err(malformed)?;
    let mut table: Table = toml::from_str(&text).map_err(malformed)?;
    let over = Table::try_from(flags).map_err(|cause| SettingsError::Mixed(cause.to_string()))?;
    merge(&mut table, over);
    table.try_into().map_err(|cause| SettingsError::Mixed(cause.to_string()))
}

/// Reads a settings file, bounded.
pub fn read(path: &Path) -> Result<String, SettingsError> {
    let unreadable = |cause| SettingsError::Unreadable { path: path.to_owned(), cause };
    let bytes = std::fs::metadata(path).map_err(unreadable)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(SettingsError::TooLarge { path: path.to_owned(), bytes });
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

fn merge(under: &mut Table, over: Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => merge(under, over),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde::Deserialize;

    use super::*;

    #[derive(Parser, Serialize, Deserialize, Default, Debug, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    struct Flags {
        #[arg(long)]
        #[serde(skip_serializing_if = "Option::is_none")]
        cores: Option<u32>,
        #[command(flatten)]
        section: Section,
    }

    #[derive(clap::Args, Serialize, Deserialize, Default, Debug, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    struct Section {
        #[arg(long)]
        #[serde(skip_serializing_if = "Option::is_none")]
        listen: Option<String>,
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn a_flag_is_stronger_than_the_file_and_absence_is_not() {
        let file = file("cores = 2\n[section]\nlisten = \"a\"\n");
        let flags = Flags { cores: Some(7), ..Flags::default() };
        let both = layer(flags, Some(file.path())).unwrap();
        assert_eq!(both, Flags { cores: Some(7), section: Section { listen: Some("a".into()) } });
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_name_and_line() {
        let file = file("cores = 2\n[section]\nlisen = \"a\"\n");
        let text = layer(Flags::default(), Some(file.path())).unwrap_err().to_string();
        assert!(text.contains("lisen") && text.contains("line 3"), "{text}");
    }

    #[test]
    fn every_long_flag_has_a_variable() {
        let command = with_environment(<Flags as clap::CommandFactory>::command(), "AREEV_TEST");
        let listen = command.get_arguments().find(|argument| argument.get_long() == Some("listen")).unwrap();
        assert_eq!(listen.get_env().unwrap(), "AREEV_TEST_LISTEN");
    }
}
