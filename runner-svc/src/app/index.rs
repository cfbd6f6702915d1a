//! The catalogue's index: a database of its own that can be made again from the catalogue's files.

use std::{
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

/// Memory for the index, in bytes.
const CACHE_BYTES: u64 = 16 * 1024 * 1024;

/// Opens the index. One that is damaged is thrown away: the catalogue fills the new one from its files.
pub fn open(folder: &Path) -> io::Result<sled::Tree> {
    match tree(folder) {
        Ok(tree) => Ok(tree),
        Err(problem) => {
            tracing::warn!(folder = %folder.display(), problem, "the catalogue's index is damaged: it is made again");
            if folder.exists() {
                fs::remove_dir_all(folder)?;
            }
            tree(folder).map_err(io::Error::other)
        }
    }
}

/// A damaged database may be told by a panic.
fn tree(folder: &Path) -> Result<sled::Tree, String> {
    let open = || sled::Config::new().path(folder).cache_capacity(CACHE_BYTES).open()?.open_tree("catalogue");
    match catch_unwind(AssertUnwindSafe(open)) {
        Ok(opened) => opened.map_err(|error| error.to_string()),
        Err(_panic) => Err("the database ended with a panic".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_index_is_made_again_empty() {
        let folder = tempfile::tempdir().unwrap();
        let tree = open(folder.path()).unwrap();
        for number in 0..1000_u32 {
            tree.insert(number.to_be_bytes(), vec![7; 100]).unwrap();
        }
        tree.flush().unwrap();
        drop(tree);
        for file in fs::read_dir(folder.path()).unwrap() {
            let path = file.unwrap().path();
            if path.is_file() {
                fs::write(path, b"not a database").unwrap();
            }
        }
        assert_eq!(open(folder.path()).unwrap().len(), 0);
    }
}
