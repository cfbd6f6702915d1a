//! System calls that no tool needs, refused by seccomp: other namespaces, mounts, other processes' memory, the kernel's own
//! machinery, and sockets of kinds that lead past the broker.

use std::{collections::BTreeMap, io};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// Refused whatever their arguments are.
const REFUSED: [i64; 47] = [
    // Other namespaces and file systems.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_fanotify_init,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Keys of the session.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    // Parts of the kernel that are wide and that tools do without.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_personality,
    libc::SYS_lookup_dcookie,
];

/// As if the kernel had them not, so that libraries fall back: a new process is then asked for by a call whose flags can be
/// read, and a socket by a call that is seen.
const ABSENT: [i64; 4] =
    [libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Flags of `clone` for new namespaces.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// The bits of a socket's type that say its kind; the others are options.
const SOCKET_KIND: u64 = 0xf;
/// Calls that send, and which of their arguments has the flags: one of these connects past every rule about connecting.
const SENDS: [(i64, u8); 3] = [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)];
/// Calls by which others would come in.
const COMING_IN: [i64; 3] = [libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4];

/// Gives them up, for this process and all that it starts. With `network` outgoing streams of TCP stay, and nothing else: to
/// whom they may lead is for Landlock to say, which knows TCP alone.
pub fn restrict(network: bool) -> io::Result<()> {
    let refused = REFUSED.into_iter().map(|call| (call, Vec::new()));
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = refused.collect();
    refused.insert(libc::SYS_clone, NAMESPACES.iter().map(|flag| clone_with(*flag)).collect::<io::Result<_>>()?);
    refused.insert(libc::SYS_socket, if network { sockets_past_tcp()? } else { Vec::new() });
    refused.extend(COMING_IN.map(|call| (call, Vec::new())));
    let fast_open = u64::from(libc::MSG_FASTOPEN.cast_unsigned());
    for (call, flags) in SENDS {
        let opens = condition(flags, SeccompCmpOp::MaskedEq(fast_open), fast_open)?;
        refused.insert(call, vec![rule(vec![opens])?]);
    }
    apply(refused, libc::EPERM)?;
    apply(ABSENT.into_iter().map(|call| (call, Vec::new())).collect(), libc::ENOSYS)
}

fn apply(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> io::Result<()> {
    let arch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let errno = SeccompAction::Errno(errno.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, errno, arch).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

fn clone_with(flag: i32) -> io::Result<SeccompRule> {
    let flag = u64::from(flag.cast_unsigned());
    rule(vec![condition(0, SeccompCmpOp::MaskedEq(flag), flag)?])
}

/// Everything but streams of TCP over IPv4 and IPv6: no datagrams, and none of the protocols that are streams too.
fn sockets_past_tcp() -> io::Result<Vec<SeccompRule>> {
    let number = |value: i32| u64::from(value.cast_unsigned());
    let other = |argument, value| condition(argument, SeccompCmpOp::Ne, number(value));
    let mut rules = vec![
        rule(vec![other(0, libc::AF_INET)?, other(0, libc::AF_INET6)?])?,
        rule(vec![other(2, 0)?, other(2, libc::IPPROTO_TCP)?])?,
    ];
    for kind in (0..=SOCKET_KIND).filter(|kind| *kind != number(libc::SOCK_STREAM)) {
        rules.push(rule(vec![condition(1, SeccompCmpOp::MaskedEq(SOCKET_KIND), kind)?])?);
    }
    Ok(rules)
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).map_err(io::Error::other)
}

fn rule(conditions: Vec<SeccompCondition>) -> io::Result<SeccompRule> {
    SeccompRule::new(conditions).map_err(io::Error::other)
}
