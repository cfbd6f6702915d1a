//! The tool of the tour, and how it becomes a module.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, bail};

use super::repeat;
use crate::{binaries::workspace, demo::screen::Screen};

/// The tool: the reference guest that the tests know too.
pub const SOURCE: &str = include_str!("../../guests/rust/examples/transform.rs");
/// What modules are compiled for.
const TARGET: &str = "wasm32-unknown-unknown";
/// The same tool as it was built for the tests.
const BUILT: &str = "tests/guests/wasm/rust/transform.wasm";

/// The manifest of a crate that holds one tool.
pub fn manifest(name: &str) -> String {
    let guest = workspace().join("sandbox-svc/guest");
    format!(
        "[package]\nname = {name:?}\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n[lib]\ncrate-type = [\"cdylib\"]\n\n\
         [dependencies]\nareev-guest = {{ path = {:?} }}\n\
         serde = {{ version = \"1\", default-features = false, features = [\"derive\"] }}\n\n\
         [profile.release]\nopt-level = \"s\"\nlto = true\npanic = \"abort\"\noverflow-checks = true\nstrip = \"debuginfo\"\n",
        guest.display().to_string()
    )
}

/// Builds the crate, and shows how if it `stays`; where the compiler has no library for modules, takes the module that was built before.
pub fn build(screen: &Screen, directory: &Path, stays: bool) -> Result<PathBuf> {
    screen.part(2, "Build");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(directory).args(["build", "--release", "--target", TARGET]).stdin(Stdio::null());
    cargo.env("CARGO_TARGET_DIR", directory.join("target"));
    if !has_library()? {
        match source_of_library() {
            Some(source) => {
                screen.note("this compiler has its library for modules as source only: it is compiled too");
                cargo.env("RUSTC_BOOTSTRAP", "1").env("__CARGO_TESTS_ONLY_SRC_ROOT", source);
                cargo.arg("-Zbuild-std=core,alloc");
            }
            None => return ready_made(screen),
        }
    }
    let began = Instant::now();
    let built = cargo.output().context("cannot start cargo")?;
    if !built.status.success() {
        bail!("the tool does not build:\n{}", String::from_utf8_lossy(&built.stderr));
    }
    let found = directory.join("target").join(TARGET).join("release");
    let module = modules(&found)?.into_iter().next().context("cargo built no module")?;
    let bytes = fs::metadata(&module).context("the module")?.len();
    screen.good("module", &format!("{} ({bytes} bytes, {} s)", module.display(), began.elapsed().as_secs()));
    if stays {
        let manifest = directory.join("Cargo.toml");
        screen.commands(&[
            format!("rustup target add {TARGET}"),
            format!("cargo build --release --target {TARGET} --manifest-path {}", repeat::shown(&manifest)),
        ]);
    }
    Ok(module)
}

fn ready_made(screen: &Screen) -> Result<PathBuf> {
    screen.line(
        "no library",
        &format!(
            "This compiler has none for modules. With `rustup target add {TARGET}` the crate builds; the tour goes on with the \
             same tool as it was built for the tests."
        ),
    );
    let module = workspace().join(BUILT);
    let bytes = fs::metadata(&module).with_context(|| format!("{BUILT}: build it with tests/guests/build"))?.len();
    screen.good("module", &format!("{} ({bytes} bytes)", module.display()));
    Ok(module)
}

fn has_library() -> Result<bool> {
    let asked =
        Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).output().context("rustc")?;
    let directory = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim());
    Ok(asked.status.success() && directory.is_dir())
}

/// The folder of the library's source: of the toolchain's own component, or the one that `RUST_SRC` names.
fn source_of_library() -> Option<PathBuf> {
    let named = std::env::var_os("RUST_SRC").map(|source| PathBuf::from(source).join("library"));
    let own = || {
        let asked = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
        Some(PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim()).join("lib/rustlib/src/rust/library"))
    };
    named.or_else(own).filter(|library| library.join("core").is_dir())
}

fn modules(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let files = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    Ok(files.into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "wasm")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_that_the_tour_writes_is_the_one_that_its_readme_recommends() {
        let manifest = manifest("total");
        let (_, profile) = manifest.split_once("[profile.release]").unwrap();
        let readme = fs::read_to_string(workspace().join("sandbox-svc/guest/README.md")).unwrap();
        let (_, recommended) = readme.split_once("[profile.release]").unwrap();
        assert!(recommended.starts_with(&format!("{profile}```")), "{profile}");
        assert!(profile.contains("overflow-checks = true"), "a sum that wraps is a wrong result");
    }
}
