//! The barriers around a native blob, by the names that the log, `Describe` and manifests have.

/// One barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Barrier {
    /// A group of its own, killed as one.
    ProcessGroup,
    /// Nothing of the service's variables but the path and the language.
    ClearedEnvironment,
    /// A fresh working directory, gone afterwards.
    PrivateDirectory,
    /// No program that it executes can give it rights.
    NoNewPrivs,
    /// CPU time, memory, files, processes.
    Rlimits,
    /// The kernel kills it when the service is gone.
    ParentDeathSignal,
    /// A service of the superuser executes it as nobody.
    UnprivilegedUser,
    /// Rights of its own count in its own namespace alone.
    UserNamespace,
    /// It sees and signals no process but its own; all of them end with the first.
    PidNamespace,
    /// No shared memory, semaphores or queues of others.
    IpcNamespace,
    /// Mounts of its own.
    MountNamespace,
    /// `/proc` shows its own processes alone.
    PrivateProc,
    /// No network at all, for effects without egress.
    NetworkNamespace,
    /// A network of its own for effects with egress too, in which there is the broker's door and nothing else.
    PrivateDoor,
    /// Writes its working directory alone and reads the system's programs; TCP leads to the port of the broker's door alone, and
    /// where there is no private door, to that port of whatever host.
    Landlock,
    /// System calls that no tool needs are refused; of sockets there are none without egress, and outgoing TCP alone with it.
    Seccomp,
}

impl Barrier {
    /// Those that need nothing of the kernel that is not always there.
    pub const ALWAYS: [Self; 6] = [
        Self::ProcessGroup,
        Self::ClearedEnvironment,
        Self::PrivateDirectory,
        Self::NoNewPrivs,
        Self::Rlimits,
        Self::ParentDeathSignal,
    ];
    /// Those that come with a user namespace.
    pub const NAMESPACES: [Self; 7] = [
        Self::UserNamespace,
        Self::PidNamespace,
        Self::IpcNamespace,
        Self::MountNamespace,
        Self::PrivateProc,
        Self::NetworkNamespace,
        Self::PrivateDoor,
    ];
    /// Those that a process raises around itself.
    pub const OWN: [Self; 2] = [Self::Landlock, Self::Seccomp];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ProcessGroup => "process_group",
            Self::ClearedEnvironment => "cleared_environment",
            Self::PrivateDirectory => "private_directory",
            Self::NoNewPrivs => "no_new_privs",
            Self::Rlimits => "rlimits",
            Self::ParentDeathSignal => "parent_death_signal",
            Self::UnprivilegedUser => "unprivileged_user",
            Self::UserNamespace => "user_namespace",
            Self::PidNamespace => "pid_namespace",
            Self::IpcNamespace => "ipc_namespace",
            Self::MountNamespace => "mount_namespace",
            Self::PrivateProc => "private_proc",
            Self::NetworkNamespace => "network_namespace",
            Self::PrivateDoor => "private_door",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        }
    }

    /// The barrier of a name.
    pub fn of(name: &str) -> Option<Self> {
        <Self as clap::ValueEnum>::from_str(name, false).ok()
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn a_barrier_is_found_by_its_name() {
        for barrier in Barrier::value_variants() {
            assert_eq!(Barrier::of(barrier.as_str()), Some(*barrier));
        }
        assert_eq!(Barrier::of("moat"), None);
    }
}
