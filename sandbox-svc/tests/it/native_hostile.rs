//! Native blobs that try to get at what is not theirs. What a kernel does not offer is not tried: `Describe` says so.

use std::{
    net::{TcpListener, UdpSocket},
    path::Path,
    process::Command,
};

use proto::sandbox::v1::{DescribeRequest, Egress, OutcomeKind, Runtime};
use serde_json::{Value, json};

use crate::{
    native::{message, run, running, unique_sleep},
    rig::{Rig, assert_failed, assert_output, start, until, within_ms},
};

/// The user and group that own nothing.
const NOBODY: u32 = 65_534;

/// Whether all of the barriers stand here. Those that always do are not asked for. One that does not stand is one that this
/// kernel does not offer: that is asked of the kernel itself.
#[expect(clippy::print_stderr, reason = "a person reads which barriers this machine cannot show")]
pub async fn stand(rig: &Rig, barriers: &[&str]) -> bool {
    let described = described(rig).await;
    let missing: Vec<_> = barriers.iter().filter(|name| !described.iter().any(|stands| stands == *name)).collect();
    if !missing.is_empty() {
        let offered = offered();
        for name in &missing {
            assert_eq!(offered[**name], json!(false), "{name} is offered, and the service does not raise it");
        }
        eprintln!("this kernel does not offer {missing:?}");
    }
    missing.is_empty()
}

pub async fn described(rig: &Rig) -> Vec<String> {
    rig.client.clone().describe(DescribeRequest {}).await.unwrap().into_inner().native_isolation
}

const OFFERS: &str = r#"
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
/* Whether a child can do it: a program that runs as a process of its own. */
static int can(int (*attempt)(void)) {
    int status = 1, child = fork();
    if (child == 0) _exit(attempt() ? 0 : 1);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}
static int namespaces(void) {
    return unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNS | CLONE_NEWNET) == 0;
}
static int proc_in_them(void) {
    if (!namespaces()) return 0;
    int status = 1, child = fork();
    if (child == 0) {
        int mounted = mount("none", "/", 0, MS_REC | MS_PRIVATE, 0) == 0;
        _exit(mounted && mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, 0) == 0 ? 0 : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}
static int door(void) {
    if (!namespaces()) return 0;
    struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(443), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int s = socket(AF_INET, SOCK_STREAM, 0);
    return ioctl(s, SIOCSIFFLAGS, &up) == 0 && bind(s, (struct sockaddr *)&at, sizeof at) == 0 && listen(s, 1) == 0;
}
static int landlock(void) { return syscall(SYS_landlock_create_ruleset, 0, 0, 1) >= 1; }
static int seccomp(void) {
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = 1, .filter = &allow};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}
int main(void) {
    int in = can(namespaces);
    const char *bit[] = {"false", "true"};
    const char *names[] = {"user_namespace", "pid_namespace", "ipc_namespace", "mount_namespace", "network_namespace"};
    printf("{");
    for (int i = 0; i < 5; i++) printf("\"%s\":%s,", names[i], bit[in]);
    printf("\"private_proc\":%s,\"private_door\":%s,\"landlock\":%s,\"seccomp\":%s}", bit[in && can(proc_in_them)],
           bit[in && can(door)], bit[can(landlock)], bit[can(seccomp)]);
    return 0;
}"#;

/// What this kernel offers to a process outside every jail, of the user that blobs have; found out without the service.
fn offered() -> Value {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("offers");
    std::fs::write(&program, compiled(OFFERS)).unwrap();
    for path in [dir.path(), &program] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(&program);
    if rustix::process::geteuid().is_root() {
        std::os::unix::process::CommandExt::uid(&mut command, NOBODY);
        std::os::unix::process::CommandExt::gid(&mut command, NOBODY);
    }
    serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
}

#[tokio::test]
async fn what_is_described_is_what_the_kernel_offers_no_more_and_no_less() {
    let described = described(&Rig::native().await).await;
    for (name, offered) in offered().as_object().unwrap() {
        assert_eq!(described.contains(name), offered == &json!(true), "{name}: {described:?}");
    }
    for name in
        ["process_group", "cleared_environment", "private_directory", "no_new_privs", "rlimits", "parent_death_signal"]
    {
        assert!(described.iter().any(|stands| stands == name), "{name}: {described:?}");
    }
    // A service of the superuser executes blobs as nobody.
    let superuser = rustix::process::geteuid().is_root();
    assert_eq!(described.iter().any(|stands| stands == "unprivileged_user"), superuser, "{described:?}");
}

/// A script that says for each command whether it could be done.
fn attempts(commands: &[(&str, String)]) -> String {
    let tries = commands.iter().map(|(name, command)| {
        format!("if ( {command} ) >/dev/null 2>&1; then echo '\"{name}\":true'; else echo '\"{name}\":false'; fi")
    });
    format!("echo '{{'\n{}\necho '}}'", tries.collect::<Vec<_>>().join("\necho ,\n"))
}

async fn tried(rig: &Rig, commands: &[(&str, String)]) -> Value {
    let outcome = run(rig, &attempts(commands), "null").await;
    assert_eq!(outcome.kind(), OutcomeKind::Completed, "{outcome:?}");
    serde_json::from_str(&outcome.output_json).unwrap()
}

/// A program in C, compiled here.
pub fn compiled(source: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (code, program) = (dir.path().join("hostile.c"), dir.path().join("hostile"));
    std::fs::write(&code, source).unwrap();
    let compiler = Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(&code).output().unwrap();
    assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
    std::fs::read(&program).unwrap()
}

#[tokio::test]
async fn files_of_the_system_of_the_service_and_of_other_calls_cannot_be_read_or_written() {
    let rig = Rig::native().await;
    if !stand(&rig, &["landlock"]).await {
        return;
    }
    let secret = rig.directory().join("secret");
    std::fs::write(&secret, "of the service").unwrap();
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let read = |path: &Path| format!("cat {}", path.display());
    let native = rig.directory().join("native");
    let said = tried(
        &rig,
        &[
            ("shadow", "cat /etc/shadow".to_owned()),
            ("secret", read(&secret)),
            ("others", format!("ls {}", native.join("work").display())),
            ("code", format!("echo evil >> {}/*", native.join("code").display())),
            ("self", "echo evil >> \"$0\"".to_owned()),
            ("outside", format!("echo x > {}", rig.directory().join("written").display())),
            ("tmp", "echo x > /tmp/areev-was-here".to_owned()),
            ("home", "ls /root".to_owned()),
            ("own", "echo x > own && cat own && mkdir sub && rm -r sub".to_owned()),
            ("temporary", "test \"$TMPDIR\" = \"$PWD\" && echo x > \"$TMPDIR/t\"".to_owned()),
            ("null", "echo x > /dev/null".to_owned()),
        ],
    )
    .await;
    let expected = json!({
        "shadow": false, "secret": false, "others": false, "code": false, "self": false, "outside": false,
        "tmp": false, "home": false, "own": true, "temporary": true, "null": true,
    });
    assert_eq!(said, expected);
    assert!(!rig.directory().join("written").exists() && !Path::new("/tmp/areev-was-here").exists());
    assert_eq!(std::fs::read_dir(native.join("work")).unwrap().count(), 0, "nothing is left");
}

#[tokio::test]
async fn the_service_and_other_processes_are_not_seen_read_or_signalled() {
    let rig = Rig::native().await;
    let service = std::process::id();
    if stand(&rig, &["landlock"]).await {
        let attempts =
            [("environ", format!("cat /proc/{service}/environ")), ("memory", format!("head -c1 /proc/{service}/mem"))];
        assert_eq!(tried(&rig, &attempts).await, json!({"environ": false, "memory": false}));
    }
    if stand(&rig, &["pid_namespace"]).await {
        assert_eq!(tried(&rig, &[("signal", format!("kill -0 {service}"))]).await, json!({"signal": false}));
    }
    if stand(&rig, &["private_proc"]).await {
        let outcome = run(&rig, "ls /proc | grep -c '^[0-9]'", "null").await;
        let seen: u32 = outcome.output_json.parse().unwrap();
        assert!(seen < 8, "{seen} processes are seen");
    }
}

const DIALS: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
static struct sockaddr_in at(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    return to;
}
static int dial(int port, int protocol) {
    int s = socket(AF_INET, SOCK_STREAM, protocol);
    struct sockaddr_in to = at(port);
    return s >= 0 && connect(s, (struct sockaddr *)&to, sizeof to) == 0;
}
/* Sends a word and says how many kinds of sending went well. */
static int say(int type, int port, int flags) {
    struct sockaddr_in to = at(port);
    struct iovec word = {"word", 4};
    struct msghdr head = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &word, .msg_iovlen = 1};
    struct mmsghdr heads = {.msg_hdr = head};
    return (sendto(socket(AF_INET, type, 0), "word", 4, flags, (struct sockaddr *)&to, sizeof to) == 4) +
           (sendmsg(socket(AF_INET, type, 0), &head, flags) == 4) +
           (sendmmsg(socket(AF_INET, type, 0), &heads, 1, flags) == 1);
}
static int refused(int port) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = at(port);
    return s < 0 || (connect(s, (struct sockaddr *)&to, sizeof to) < 0 && errno == EACCES);
}
int main(void) {
    int first, second, sink;
    if (scanf("[%d,%d,%d]", &first, &second, &sink) != 3) return 9;
    int listening = socket(AF_INET, SOCK_STREAM, 0), unbound = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET};
    int bound = listening >= 0 && bind(listening, (struct sockaddr *)&any, sizeof any) == 0 && listen(listening, 1) == 0;
    printf("{\"first\":%d,\"second\":%d,\"names\":%d,\"listens\":%d,", dial(first, 0), dial(second, 0), !refused(53),
           bound || (unbound >= 0 && listen(unbound, 1) == 0));
    int others = 0;
    for (int protocol = 1; protocol < 300; protocol++)
        others += protocol != IPPROTO_TCP && socket(AF_INET, SOCK_STREAM, protocol) >= 0;
    printf("\"multipath\":%d,\"protocols\":%d,\"datagrams\":%d,\"quick\":%d,", dial(second, 262), others,
           say(SOCK_DGRAM, sink, 0), say(SOCK_STREAM, second, MSG_FASTOPEN));
    int families = 0, kinds = 0;
    for (int family = 0; family < 50; family++)
        for (int kind = 0; kind < 16; kind++) {
            int inner = family == AF_INET || family == AF_INET6;
            int opened = socket(family, kind, 0) >= 0 || socket(family, kind | SOCK_CLOEXEC, 0) >= 0;
            families += opened && !inner;
            kinds += opened && inner && kind != SOCK_STREAM;
        }
    printf("\"families\":%d,\"kinds\":%d}", families, kinds);
    return 0;
}"#;

#[tokio::test]
async fn there_is_no_network_without_egress_and_only_the_brokers_door_with_it() {
    let rig = Rig::native().await;
    if !stand(&rig, &["seccomp", "landlock"]).await {
        return;
    }
    let (door, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let uri = rig.put(&compiled(DIALS)).await;
    let ports = format!("[{},{},{}]", port(&door), port(&other), sink.local_addr().unwrap().port());
    let mut message = start(&uri, Runtime::Native, &ports);
    let nothing = |first: u8| {
        let others = r#""second":0,"names":0,"listens":0,"multipath":0,"protocols":0,"datagrams":0,"quick":0"#;
        format!(r#"{{"first":{first},{others},"families":0,"kinds":0}}"#)
    };
    let without = rig.execute(message.clone()).await.unwrap().0;
    assert_output(&without, &nothing(0));
    message.egress =
        Some(Egress { token: "t0".to_owned(), url: format!("http://127.0.0.1:{}/", port(&door)), ..Egress::default() });
    let with = rig.execute(message).await.unwrap().0;
    assert_output(&with, &nothing(1));
    other.set_nonblocking(true).unwrap();
    assert!(other.accept().is_err(), "nobody came");
    sink.set_nonblocking(true).unwrap();
    assert!(sink.recv(&mut [0; 8]).is_err(), "nothing was sent");
}

const FORKS: &str = r#"
#include <stdio.h>
#include <unistd.h>
int main(void) {
    int born = 0;
    for (int i = 0; i < 2000; i++) {
        int pid = fork();
        if (pid == 0) for (;;) pause();
        if (pid > 0) born++;
    }
    printf("%d", born);
    fflush(stdout);
    return 0;
}"#;

#[tokio::test]
async fn processes_are_counted_and_none_of_them_stays() {
    let rig = Rig::native().await;
    if !stand(&rig, &["user_namespace", "pid_namespace"]).await {
        return;
    }
    let program = compiled(FORKS);
    let digest = content_digest::Digest::of(&program).to_hex();
    let uri = rig.put(&program).await;
    let outcome = rig.execute(start(&uri, Runtime::Native, "null")).await.unwrap().0;
    assert_eq!(outcome.kind(), OutcomeKind::Completed, "{outcome:?}");
    let born: u32 = outcome.output_json.parse().unwrap();
    assert!((1..=256).contains(&born), "{born} processes were born");
    let path = rig.directory().join("native/code").join(digest);
    until("all of them are gone", || !running(path.to_str().unwrap())).await;
}

#[tokio::test]
async fn a_bomb_of_shells_ends_at_the_deadline() {
    let rig = Rig::native().await;
    if !stand(&rig, &["user_namespace", "pid_namespace"]).await {
        return;
    }
    let sleep = unique_sleep();
    let script = format!("bomb() {{ sleep {sleep} & bomb & bomb; }}; bomb; wait; sleep {sleep}");
    let mut message = message(&rig, &script, "null").await;
    message.deadline = within_ms(2000);
    let outcome = rig.execute(message).await.unwrap().0;
    assert_ne!(outcome.kind(), OutcomeKind::Completed, "{outcome:?}");
    until("all of it is gone", || !running(&sleep)).await;
    assert_output(&run(&rig, "echo 1", "null").await, "1");
}

const ESCAPES: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>
static char stack[65536];
static int child(void *unused) { return 0; }
static int refused(long answered, int expected) { return answered < 0 && errno == expected; }
int main(void) {
    printf("[%d", refused(unshare(CLONE_NEWUSER), EPERM));
    printf(",%d", refused(clone(child, stack + sizeof stack, CLONE_NEWUSER | SIGCHLD, 0), EPERM));
    printf(",%d", refused(syscall(SYS_clone3, 0, 0), ENOSYS));
    printf(",%d", refused(mount("none", "/", "tmpfs", 0, 0), EPERM));
    printf(",%d", refused(ptrace(PTRACE_ATTACH, getppid(), 0, 0), EPERM));
    printf(",%d", refused(syscall(SYS_bpf, 0, 0, 0), EPERM));
    printf(",%d", refused(syscall(SYS_io_uring_setup, 1, 0), ENOSYS));
    printf(",%d", getuid() == 0 || setuid(0) < 0);
    printf("]");
    return 0;
}"#;

#[tokio::test]
async fn other_namespaces_mounts_and_the_kernels_machinery_are_refused() {
    let rig = Rig::native().await;
    if !stand(&rig, &["seccomp"]).await {
        return;
    }
    let uri = rig.put(&compiled(ESCAPES)).await;
    let outcome = rig.execute(start(&uri, Runtime::Native, "null")).await.unwrap().0;
    assert_output(&outcome, "[1,1,1,1,1,1,1,1]");
}

#[tokio::test]
async fn a_file_that_never_ends_ends_its_writer() {
    let rig = Rig::native().await;
    let outcome = run(&rig, "ulimit -f; exec head -c 300000000 /dev/zero > big", "null").await;
    assert_failed(&outcome, OutcomeKind::Exit, "killed by signal 25");
    assert_eq!(std::fs::read_dir(rig.directory().join("native/work")).unwrap().count(), 0, "nothing is left");
}
