//! Settings in three layers: flags over environment over one TOML file, with every unknown key refused.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};
use toml::{Table, Value};

use crate::files;

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
    #[error("{path} is over the {FILE_BYTES_MAX} bytes that a settings file may have", path = path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file is no text.
    #[error("{path} is no settings file: byte {valid} is not UTF-8 text", path = path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// How many bytes of it are text.
        valid: usize,
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
    layer_text(flags, path, &read(path)?)
}

/// The same with the text of a file that has been read: whoever needs it twice sees one and the same.
pub fn layer_text<T: Serialize + DeserializeOwned>(flags: T, path: &Path, text: &str) -> Result<T, SettingsError> {
    let malformed = |cause| SettingsError::Malformed { path: path.to_owned(), cause: Box::new(cause) };
    // Deserialising the text itself first gives errors with line and column.
    toml::from_str::<T>(text).map_err(malformed)?;
    let mut table: Table = toml::from_str(text).map_err(malformed)?;
    let over = Table::try_from(flags).map_err(|cause| SettingsError::Mixed(cause.to_string()))?;
    merge(&mut table, over);
    table.try_into().map_err(|cause| SettingsError::Mixed(cause.to_string()))
}

/// Reads a settings file, once and bounded. Never waits: what is no regular file, such as a pipe, is refused.
pub fn read(path: &Path) -> Result<String, SettingsError> {
    let unreadable = |cause| SettingsError::Unreadable { path: path.to_owned(), cause };
    let mut bytes = Vec::new();
    let file = files::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(SettingsError::TooLarge { path: path.to_owned() });
    }
    String::from_utf8(bytes).map_err(|cause| {
        let valid = cause.utf8_error().valid_up_to();
        SettingsError::NotText { path: path.to_owned(), valid }
    })
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
    fn what_is_no_file_of_settings_is_refused_at_once_and_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        // Large, and none of it on the disk.
        std::fs::File::create(at("large")).unwrap().set_len(1 << 40).unwrap();
        std::fs::write(at("latin1"), b"cores = 2 # \xe9").unwrap();
        for (path, words) in [
            (at("pipe"), "not a regular file"),
            (at(""), "not a regular file"),
            ("/dev/zero".into(), "not a regular file"),
            (at("large"), "over the 1048576 bytes"),
            (at("latin1"), "byte 12 is not UTF-8"),
            (at("gone"), "No such file"),
        ] {
            let text = layer(Flags::default(), Some(&path)).unwrap_err().to_string();
            assert!(text.contains(words) && text.contains(&*path.display().to_string()), "{text}");
        }
    }

    #[test]
    fn every_long_flag_has_a_variable() {
        let command = with_environment(<Flags as clap::CommandFactory>::command(), "AREEV_TEST");
        let listen = command.get_arguments().find(|argument| argument.get_long() == Some("listen")).unwrap();
        assert_eq!(listen.get_env().unwrap(), "AREEV_TEST_LISTEN");
    }
}
