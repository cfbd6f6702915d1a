//! Host tools and sandbox commands as shell scripts that write down every call.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// A script that appends one line `tool key` a call, before it does what it does.
pub struct ShellTool {
    script: PathBuf,
    calls: PathBuf,
}

/// One call of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The tool's name.
    pub tool: String,
    /// The effect's idempotency key.
    pub key: String,
}

impl ShellTool {
    /// Writes a script. `body` is shell; its standard input is the node's input, its output the result.
    pub fn write(directory: &Path, name: &str, body: &str) -> Result<Self> {
        let (script, calls) = (directory.join(name), directory.join(format!("{name}.calls")));
        let record =
            format!("printf '%s %s\\n' \"$AREEV_TOOL_NAME\" \"$AREEV_IDEMPOTENCY_KEY\" >> '{}'", calls.display());
        executable(&script, &format!("#!/bin/sh\n{record}\n{body}\n"))?;
        fs::write(&calls, "").context("the list of calls")?;
        Ok(Self { script, calls })
    }

    /// A tool that answers `{"did_<tool>": true}`.
    pub fn doing(directory: &Path) -> Result<Self> {
        Self::write(directory, "tool.sh", "cat > /dev/null; printf '{\"did_%s\": true}' \"$AREEV_TOOL_NAME\"")
    }

    /// A sandbox command that answers with its own argument vector.
    pub fn argv(directory: &Path) -> Result<Self> {
        Self::write(directory, "sandbox.sh", "cat > /dev/null; printf '{\"argv\":\"%s\"}' \"$*\"")
    }

    /// The script.
    pub fn path(&self) -> &Path {
        &self.script
    }

    /// The script as a shell command.
    pub fn command(&self) -> String {
        format!("'{}'", self.script.display())
    }

    /// Begins the list of calls anew.
    pub fn forget(&self) -> Result<()> {
        fs::write(&self.calls, "").context("the list of calls")
    }

    /// Every call so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        let text = fs::read_to_string(&self.calls).unwrap_or_default();
        let line = |line: &str| {
            let (tool, key) = line.split_once(' ').unwrap_or((line, ""));
            Call { tool: tool.to_owned(), key: key.to_owned() }
        };
        text.lines().map(line).collect()
    }
}

/// Writes an executable script.
pub fn executable(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).context("a script")?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).context("a script's mode")
}
