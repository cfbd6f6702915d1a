//! What a native blob leaves, made to be hard to remove.

use proto::sandbox::v1::Runtime;

use crate::{
    guests,
    native_hostile::compiled,
    rig::{Rig, assert_output, start, until},
};

/// Directories, one in the other, deeper than a path can name, each with a file; the outermost closed to its owner.
const DEEP: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void) {
    int levels = 0, top = open(".", O_RDONLY);
    for (; levels < 3000; levels++) {
        if (mkdir("d", 0700) || chdir("d")) return 1;
        close(creat("f", 0600));
    }
    if (fchmod(top, 0)) return 1;
    printf("%d", levels);
    return 0;
}"#;

#[tokio::test]
async fn a_tree_deeper_than_any_path_is_removed_while_others_are_served() {
    let rig = Rig::native().await;
    let blob = rig.put(&compiled(DEEP)).await;
    for _ in 0..3 {
        let outcome = rig.execute(start(&blob, Runtime::Native, "null")).await.unwrap().0;
        assert_output(&outcome, "3000");
        assert_output(&rig.run(&guests::echo(), Runtime::Wasm32Areev, "1").await, "1");
    }
    let native = rig.directory().join("native");
    let entries = |name| std::fs::read_dir(native.join(name)).unwrap().count();
    assert_eq!(entries("work"), 0);
    until("all of it has gone", || entries("gone") == 0).await;
}
