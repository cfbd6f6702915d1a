//! The cache on disk: a restart compiles nothing again, and nobody else's file is ever run.

use std::{
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use content_digest::Digest;
use proto::{
    fault::{Reason, reason_of},
    sandbox::v1::Runtime,
};
use sandbox_svc::module_cache::disk::DiskSettings;

use crate::{
    guests,
    rig::{Rig, assert_output, start},
};

const PURE: Runtime = Runtime::Wasm32Areev;

fn settings(dir: &Path) -> DiskSettings {
    DiskSettings { dir: dir.to_owned(), key_file: None, bytes_max: 1 << 30 }
}

async fn rig(dir: &Path) -> Rig {
    with(settings(dir)).await
}

async fn with(settings: DiskSettings) -> Rig {
    Rig::with(|config| config.disk = Some(settings)).await
}

fn private(dir: &Path) -> PathBuf {
    dir.join("areev-sandbox-code")
}

/// The cached file of a module.
fn file_of(dir: &Path, uri: &str) -> PathBuf {
    let hex = uri.rsplit(':').next().unwrap();
    let mut files = std::fs::read_dir(private(dir)).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(hex)).expect("it is cached")
}

fn says(text: &str) -> Vec<u8> {
    wat::parse_str(guests::says(text)).unwrap()
}

/// Executes modules once, so that they are cached.
async fn filled(dir: &Path, modules: &[Vec<u8>]) -> Vec<String> {
    let rig = rig(dir).await;
    let mut uris = Vec::new();
    for module in modules {
        let uri = rig.put(module).await;
        rig.execute(start(&uri, PURE, "null")).await.unwrap();
        uris.push(uri);
    }
    uris
}

#[tokio::test]
async fn a_restart_runs_warm_modules_without_compiling_and_without_an_upload() {
    let dir = tempfile::tempdir().unwrap();
    let uris = filled(dir.path(), &[says("1"), says("2")]).await;
    let rig = rig(dir.path()).await;
    for (uri, output) in uris.iter().zip(["1", "2"]) {
        let stat = rig.stat(uri).await;
        assert_eq!((stat.present, stat.size_bytes, stat.compiled), (true, 0, false));
        assert_output(&rig.execute(start(uri, PURE, "null")).await.unwrap().0, output);
    }
    let disk = rig.sandbox.modules.disk().unwrap();
    assert_eq!((rig.sandbox.modules.compilations(), disk.loads(), disk.rejections()), (0, 2, 0));
    // Native code is never what the cache has.
    let native = rig.execute(start(&uris[0], Runtime::Native, "null")).await.unwrap_err();
    assert_eq!(reason_of(&native), Some(Reason::NativeDisabled));
}

#[tokio::test]
async fn what_a_runtime_refused_it_still_refuses_from_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let module = wat::parse_str(guests::fetches(&["{\"url\":\"https://x\"}"])).unwrap();
    let uris = filled(dir.path(), std::slice::from_ref(&module)).await;
    let fresh = rig(dir.path()).await;
    let outcome = fresh.execute(start(&uris[0], PURE, "null")).await.unwrap().0;
    assert!(outcome.text.contains("import `areev::fetch` is refused"), "{outcome:?}");
    assert_eq!(fresh.sandbox.modules.disk().unwrap().loads(), 1);
}

/// Does something to the cached file of the first of two modules, and expects that nothing of it is run.
async fn attacked(how: &str, attack: impl FnOnce(&Path, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    let modules = [says("1"), says("2")];
    let uris = filled(dir.path(), &modules).await;
    attack(&file_of(dir.path(), &uris[0]), &file_of(dir.path(), &uris[1]));
    let rig = rig(dir.path()).await;
    // Without the bytes it is asked for, and then compiled from them.
    let status = rig.execute(start(&uris[0], PURE, "null")).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(Reason::ModuleNotFound), "{how}");
    assert!(!rig.stat(&uris[0]).await.present, "{how}");
    rig.put(&modules[0]).await;
    assert_output(&rig.execute(start(&uris[0], PURE, "null")).await.unwrap().0, "1");
    assert_output(&rig.execute(start(&uris[1], PURE, "null")).await.unwrap().0, "2");
    let disk = rig.sandbox.modules.disk().unwrap();
    assert_eq!((rig.sandbox.modules.compilations(), disk.rejections()), (1, 1), "{how}");
    // The spoiled file was replaced by a good one.
    drop(rig);
    let rig = self::rig(dir.path()).await;
    assert_output(&rig.execute(start(&uris[0], PURE, "null")).await.unwrap().0, "1");
    assert_eq!(rig.sandbox.modules.compilations(), 0, "{how}");
}

#[tokio::test]
async fn a_file_of_another_module_under_this_ones_name_is_rejected() {
    attacked("another module's file", |one, two| std::fs::copy(two, one).map(|_| ()).unwrap()).await;
}

#[tokio::test]
async fn a_cut_a_longer_and_a_changed_file_are_rejected() {
    for (how, change) in [
        ("cut to nothing", (|bytes: &mut Vec<u8>| bytes.clear()) as fn(&mut Vec<u8>)),
        ("cut in its seal", |bytes| bytes.truncate(20)),
        ("cut in the middle", |bytes| bytes.truncate(bytes.len() / 2)),
        ("longer", |bytes| bytes.push(0)),
        ("another beginning", |bytes| bytes[0] ^= 1),
        ("a bit of the seal", |bytes| bytes[20] ^= 1),
        ("a bit of what is known", |bytes| bytes[60] ^= 1),
        ("a bit of the code", |bytes| *bytes.last_mut().unwrap() ^= 1),
    ] {
        attacked(how, |one, _| {
            let mut bytes = std::fs::read(one).unwrap();
            change(&mut bytes);
            std::fs::write(one, bytes).unwrap();
        })
        .await;
    }
}

#[tokio::test]
async fn links_and_files_that_others_may_touch_are_rejected() {
    attacked("a symbolic link to a good file", |one, _| {
        let elsewhere = one.with_file_name("elsewhere");
        std::fs::rename(one, &elsewhere).unwrap();
        symlink(elsewhere, one).unwrap();
    })
    .await;
    attacked("a second name", |one, _| std::fs::hard_link(one, one.with_file_name("second")).unwrap()).await;
    attacked("writable by all", |one, _| {
        std::fs::set_permissions(one, std::fs::Permissions::from_mode(0o666)).unwrap();
    })
    .await;
    attacked("readable by the group", |one, _| {
        std::fs::set_permissions(one, std::fs::Permissions::from_mode(0o640)).unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_file_of_another_owner_is_rejected() {
    // Only root can give a file away; a user that is not root cannot be attacked with one of its own.
    if rustix::process::geteuid().is_root() {
        attacked("another owner", |one, _| std::os::unix::fs::chown(one, Some(65_534), None).unwrap()).await;
    }
}

#[tokio::test]
async fn a_replaced_key_or_one_that_others_may_read_makes_all_files_worthless() {
    let spoil: [fn(&Path); 4] = [
        |key| std::fs::write(key, [7; 32]).unwrap(),
        |key| std::fs::remove_file(key).unwrap(),
        |key| std::fs::write(key, b"short").unwrap(),
        |key| std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o644)).unwrap(),
    ];
    for spoil in spoil {
        let dir = tempfile::tempdir().unwrap();
        let module = says("1");
        let uris = filled(dir.path(), std::slice::from_ref(&module)).await;
        spoil(&private(dir.path()).join("key"));
        let rig = rig(dir.path()).await;
        rig.put(&module).await;
        assert_output(&rig.execute(start(&uris[0], PURE, "null")).await.unwrap().0, "1");
        let disk = rig.sandbox.modules.disk().unwrap();
        assert_eq!((rig.sandbox.modules.compilations(), disk.loads(), disk.rejections()), (1, 0, 1));
    }
}

#[tokio::test]
async fn a_given_key_is_used_and_another_one_opens_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let key = |name: &str, byte: u8| {
        let file = dir.path().join(name);
        std::fs::write(&file, [byte; 48]).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        DiskSettings { key_file: Some(file), ..settings(dir.path()) }
    };
    let (one, two) = (key("one", 1), key("two", 2));
    let module = says("1");
    for (settings, compilations) in [(one.clone(), 1), (one.clone(), 0), (two, 1), (one, 1)] {
        let rig = with(settings).await;
        let uri = rig.put(&module).await;
        assert_output(&rig.execute(start(&uri, PURE, "null")).await.unwrap().0, "1");
        assert_eq!(rig.sandbox.modules.compilations(), compilations);
    }
    assert!(!private(dir.path()).join("key").exists());
}

fn opened(settings: &DiskSettings) -> Result<(), String> {
    let engine = sandbox_svc::engine::Engine::new(1, 16).unwrap();
    sandbox_svc::module_cache::disk::DiskCache::open(settings, &engine, 16).map(|_| ()).map_err(|e| e.to_string())
}

#[tokio::test]
async fn a_given_key_that_others_can_write_or_own_is_refused_by_its_name_and_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("given");
    std::fs::write(&file, [1; 48]).unwrap();
    let settings = DiskSettings { key_file: Some(file.clone()), ..settings(dir.path()) };
    for (mode, refused) in [(0o400, false), (0o600, false), (0o644, false), (0o620, true), (0o602, true), (0o666, true)]
    {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let expected = format!("{}: its mode is {mode:04o}", file.display());
        match opened(&settings) {
            Ok(()) => assert!(!refused, "{mode:o}"),
            Err(text) => assert!(refused && text.contains(&expected), "{mode:o}: {text}"),
        }
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    // Only root can give a file away.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&file, Some(65_534), None).unwrap();
        let text = opened(&settings).unwrap_err();
        assert!(text.contains(&format!("{}: it belongs to user 65534", file.display())), "{text}");
    }
}

#[test]
fn a_key_that_cannot_be_replaced_is_not_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    opened(&settings(dir.path())).unwrap();
    let key = private(dir.path()).join("key");
    std::fs::remove_file(&key).unwrap();
    std::fs::create_dir(&key).unwrap();
    let mut service = std::process::Command::new(env!("CARGO_BIN_EXE_sandbox-svc"));
    service.args(["--listen", "127.0.0.1:0", "--admin-listen", "off", "--cache-dir"]).arg(dir.path());
    let ended = service.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("cannot make the key"), "{said}");
    assert!(!said.contains("replaced"), "{said}");
}

#[tokio::test]
async fn the_cache_is_bounded_in_bytes_and_forgets_what_was_used_longest_ago() {
    let dir = tempfile::tempdir().unwrap();
    let modules = [says("1"), says("2"), says("3")];
    let uris = filled(dir.path(), &modules).await;
    let size = std::fs::metadata(file_of(dir.path(), &uris[0])).unwrap().len();
    let rig = with(DiskSettings { bytes_max: 2 * size + size / 2, ..settings(dir.path()) }).await;
    let disk = rig.sandbox.modules.disk().unwrap();
    assert_eq!(disk.held().0, 2, "the oldest one made room as it was opened");
    assert!(!rig.stat(&uris[0]).await.present);
    // The second is used; the third is now the oldest, and makes room for the first.
    assert_output(&rig.execute(start(&uris[1], PURE, "null")).await.unwrap().0, "2");
    rig.put(&modules[0]).await;
    assert_output(&rig.execute(start(&uris[0], PURE, "null")).await.unwrap().0, "1");
    let known = |uri: &str| disk.contains(&Digest::from_uri(uri).unwrap());
    assert_eq!(uris.iter().map(|uri| known(uri)).collect::<Vec<_>>(), [true, true, false]);
    assert!(disk.held().1 <= 2 * size + size / 2);
}

#[tokio::test]
async fn a_directory_that_is_not_the_services_own_is_not_used() {
    let open = |dir: &Path| opened(&settings(dir));
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).unwrap();
    std::fs::set_permissions(private(dir.path()), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(open(dir.path()).unwrap_err().contains("chmod 700"));
    let linked = tempfile::tempdir().unwrap();
    std::fs::set_permissions(private(dir.path()), std::fs::Permissions::from_mode(0o700)).unwrap();
    symlink(private(dir.path()), private(linked.path())).unwrap();
    assert!(open(linked.path()).unwrap_err().contains("cannot open the cache directory"));
}

#[tokio::test]
async fn a_full_or_missing_directory_makes_the_service_slower_and_not_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let rig = rig(dir.path()).await;
    std::fs::remove_dir_all(private(dir.path())).unwrap();
    for _ in 0..2 {
        assert_output(&rig.run(&guests::says("1"), PURE, "null").await, "1");
    }
    assert_eq!((rig.sandbox.modules.compilations(), rig.sandbox.modules.disk().unwrap().held().0), (1, 0));
}
