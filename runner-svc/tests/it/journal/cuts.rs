//! A store's file that is cut anywhere: it is refused, or every run is whole or says that it is damaged.

use std::fs::{self, OpenOptions};

use runner_svc::journal::OpenError;

use super::{
    damage::copy,
    pages::{RUNS, filled, mending, whole},
};

/// Records of each run: about 2 MiB of log.
const RECORDS: u64 = 24;
/// How far apart the cuts are.
const STEP_BYTES: usize = 192 * 1024;

#[tokio::test]
async fn a_file_that_is_cut_anywhere_is_refused_until_the_loss_is_accepted_and_then_names_what_it_lost() {
    for often in [false, true] {
        let folder = filled(often, RECORDS).await;
        let length = fs::metadata(folder.dir.path().join("journal/db")).unwrap().len();
        assert!(length > 1_500_000, "often {often}: {length} bytes are too few to cut");
        let mut refusals = 0;
        for place in (0..length).step_by(STEP_BYTES) {
            let case = format!("often {often}, cut at {place} of {length}");
            let dir = tempfile::tempdir().unwrap();
            copy(folder.dir.path(), dir.path());
            let log = dir.path().join("journal/db");
            OpenOptions::new().write(true).open(log).unwrap().set_len(place).unwrap();
            match mending(dir.path(), false) {
                Ok((journal, _)) => {
                    assert_eq!(whole(&journal, &case, RECORDS), RUNS, "{case}: a loss was accepted silently")
                }
                Err(OpenError::Lost { .. } | OpenError::Cut { .. }) => refusals += 1,
                Err(other) => panic!("{case}: {other}"),
            }
            let (journal, _) = mending(dir.path(), true).unwrap_or_else(|refused| panic!("{case}: {refused}"));
            whole(&journal, &case, RECORDS);
        }
        assert!(refusals > 8, "often {often}: the cuts hit nothing: {refusals}");
    }
}
