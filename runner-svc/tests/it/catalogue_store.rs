//! Grains on disk and in the index: found again after every kind of loss, by lookups that do not grow.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use runner_svc::catalogue::{
    Catalogue, CatalogueError,
    grain::{Grain, GrainType, author},
};
use serde_json::json;

struct Store {
    directory: tempfile::TempDir,
}

impl Store {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Opens the catalogue over one database file.
    fn open(&self, database: &str) -> Catalogue {
        let db = database_at(&self.path().join(database));
        let catalogue = Catalogue::open(self.path(), db.open_tree("catalogue").unwrap()).unwrap();
        db.flush().unwrap();
        catalogue
    }

    fn grain_file(&self, grain: &Grain) -> std::path::PathBuf {
        let hex = grain.hash().to_hex();
        self.path().join("grains").join(&hex[..2]).join(&hex[2..])
    }
}

/// Opens a database that was closed a moment ago. Its lock outlives it a little: in the store's own threads, and in every
/// child that a test beside this one has forked and that has not become its program yet.
fn database_at(path: &Path) -> sled::Db {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match sled::Config::new().path(path).flush_every_ms(None).open() {
            Ok(db) => return db,
            Err(error) if error.to_string().contains("lock") && Instant::now() < deadline => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn definition(name: &str, created_at_ms: i64) -> Grain {
    let document = json!({"tool_name": name, "kind": "definition", "created_at": created_at_ms}).to_string();
    author::from_json(GrainType::Tool, &document, "ops", 0).unwrap()
}

fn plan(name: &str, created_at_ms: i64) -> Grain {
    let document = json!({"nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b"}], "name": name,
        "created_at": created_at_ms});
    author::from_json(GrainType::Workflow, &document.to_string(), "ops", 0).unwrap()
}

fn names(catalogue: &Catalogue) -> Vec<(String, i64)> {
    let page = catalogue.definitions("ops", None, 1000).unwrap().unwrap();
    page.items.into_iter().map(|summary| (summary.tool_name, summary.created_at_ms)).collect()
}

#[test]
fn a_stored_grain_is_read_back_whole_and_storing_it_again_changes_nothing() {
    let store = Store::new();
    let catalogue = store.open("db");
    let grain = definition("work", 500);
    for _ in 0..3 {
        catalogue.put_grain(&grain).unwrap();
    }
    assert_eq!(catalogue.grain(&grain.hash()).unwrap().unwrap(), grain);
    assert_eq!(names(&catalogue), [("work".to_owned(), 500)]);
    assert_eq!(fs::metadata(store.path().join("grains/ledger")).unwrap().len(), 32);
    assert!(catalogue.grain(&definition("other", 1).hash()).unwrap().is_none());
}

#[test]
fn the_newest_definition_of_a_name_is_by_time_then_by_hash_and_in_its_namespace() {
    let store = Store::new();
    let catalogue = store.open("db");
    for (name, time) in [("work", 5), ("work", 900), ("work", -7), ("work2", 1000), ("wor", 1000)] {
        catalogue.put_grain(&definition(name, time)).unwrap();
    }
    assert_eq!(catalogue.newest_definition("ops", "work").unwrap(), Some(definition("work", 900).hash()));
    assert_eq!(catalogue.newest_definition("ops", "wo").unwrap(), None);
    assert_eq!(catalogue.newest_definition("elsewhere", "work").unwrap(), None);
    assert_eq!(catalogue.newest_definition("ops", &"x".repeat(100_000)).unwrap(), None);
    let twins: Vec<Grain> = ["a", "b", "c"]
        .iter()
        .map(|text| {
            let document =
                json!({"tool_name": "twin", "kind": "definition", "tool_description": text, "created_at": 7});
            author::from_json(GrainType::Tool, &document.to_string(), "ops", 0).unwrap()
        })
        .collect();
    for twin in &twins {
        catalogue.put_grain(twin).unwrap();
    }
    let greatest = twins.iter().map(Grain::hash).max();
    assert_eq!(catalogue.newest_definition("ops", "twin").unwrap(), greatest);
}

#[test]
fn lists_come_in_pages_without_gaps_or_repeats() {
    let store = Store::new();
    let catalogue = store.open("db");
    for time in 0..25 {
        catalogue.put_grain(&plan(&format!("plan-{time}"), time)).unwrap();
        catalogue.put_grain(&definition(&format!("tool-{:02}", time % 5), time)).unwrap();
    }
    let mut after = None;
    let (mut plans, mut pages) = (Vec::new(), 0);
    loop {
        let page = catalogue.plans("ops", after.as_deref(), 7).unwrap().unwrap();
        assert!(page.items.len() <= 7);
        plans.extend(page.items);
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, 4);
    let times: Vec<i64> = plans.iter().map(|plan| plan.created_at_ms).collect();
    assert_eq!(times, (0..25).rev().collect::<Vec<_>>());
    assert_eq!((plans[0].name.as_str(), plans[0].nodes, plans[0].edges), ("plan-24", 2, 1));
    let place = catalogue.plans("ops", None, 1).unwrap().unwrap().next;
    assert!(catalogue.plans("elsewhere", place.as_deref(), 1).unwrap().is_err(), "a place of another namespace");
    assert!(catalogue.definitions("ops", place.as_deref(), 1).unwrap().is_err(), "a place of another list");
    let listed = names(&catalogue);
    let mut sorted = listed.clone();
    sorted.sort_by_key(|(name, time)| (name.clone(), -time));
    assert_eq!(listed, sorted);
}

#[test]
fn an_index_that_lost_its_tail_or_itself_is_made_whole_at_the_next_start() {
    let store = Store::new();
    let all = [definition("a", 1), definition("b", 2), definition("c", 3)];
    store.open("db").put_grain(&all[0]).unwrap();
    // A database from before the last two grains were stored.
    let copy = store.path().join("older");
    fs::create_dir(&copy).unwrap();
    copy_directory(&store.path().join("db"), &copy);
    let catalogue = store.open("db");
    catalogue.put_grain(&all[1]).unwrap();
    catalogue.put_grain(&all[2]).unwrap();
    drop(catalogue);
    let expected: Vec<_> = [("a", 1), ("b", 2), ("c", 3)].map(|(name, time)| (name.to_owned(), time)).into();
    assert_eq!(names(&store.open("older")), expected);
    assert_eq!(names(&store.open("empty")), expected);
    fs::remove_file(store.path().join("grains/ledger")).unwrap();
    assert_eq!(names(&store.open("db")), expected);
    // A ledger from before the index was written.
    fs::write(store.path().join("grains/ledger"), all[0].hash().as_bytes()).unwrap();
    assert_eq!(names(&store.open("db")), expected);
    // A ledger whose last entry was torn by a crash.
    let mut ledger = fs::read(store.path().join("grains/ledger")).unwrap();
    ledger.extend([7; 13]);
    fs::write(store.path().join("grains/ledger"), &ledger).unwrap();
    let catalogue = store.open("db");
    catalogue.put_grain(&definition("d", 4)).unwrap();
    drop(catalogue);
    assert_eq!(names(&store.open("fresh")).len(), 4);
}

#[test]
fn a_damaged_grain_is_named_stops_nothing_else_and_is_mended_by_storing_it_again() {
    let store = Store::new();
    let (good, bad) = (definition("good", 1), definition("bad", 2));
    let catalogue = store.open("db");
    catalogue.put_grain(&good).unwrap();
    catalogue.put_grain(&bad).unwrap();
    fs::write(store.grain_file(&bad), b"damaged").unwrap();
    let error = catalogue.grain(&bad.hash()).unwrap_err();
    assert!(matches!(error, CatalogueError::Damaged { digest } if digest == bad.hash()), "{error}");
    assert!(error.to_string().contains(&bad.hash().to_hex()));
    drop(catalogue);
    let catalogue = store.open("new");
    assert_eq!(names(&catalogue), [("good".to_owned(), 1)]);
    catalogue.put_grain(&bad).unwrap();
    assert_eq!(catalogue.grain(&bad.hash()).unwrap().unwrap(), bad);
    assert_eq!(names(&catalogue).len(), 2);
}

#[test]
fn many_writers_at_once_lose_nothing_and_count_nothing_twice() {
    let store = Store::new();
    let catalogue = store.open("db");
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let catalogue = &catalogue;
            scope.spawn(move || {
                for time in 0..40 {
                    // Every other grain is the same for all writers.
                    let name = if time % 2 == 0 { "shared".to_owned() } else { format!("of-{writer}") };
                    catalogue.put_grain(&definition(&name, time)).unwrap();
                }
            });
        }
    });
    assert_eq!(names(&catalogue).len(), 20 + 8 * 20);
    assert_eq!(fs::metadata(store.path().join("grains/ledger")).unwrap().len(), 32 * (20 + 8 * 20));
    let listed = names(&catalogue);
    drop(catalogue);
    assert_eq!(names(&store.open("new")), listed);
}

#[test]
fn a_foreign_definition_that_no_node_could_name_is_kept_by_its_address_alone() {
    let store = Store::new();
    let catalogue = store.open("db");
    let long = definition(&"n".repeat(5000), 1);
    catalogue.put_grain(&long).unwrap();
    assert_eq!(catalogue.grain(&long.hash()).unwrap().unwrap(), long);
    assert_eq!(names(&catalogue), []);
    let wordy = json!({"tool_name": "wordy", "kind": "definition", "tool_description": "\u{1}".repeat(100_000),
        "executor_uri": "é".repeat(9000)});
    let wordy = author::from_json(GrainType::Tool, &wordy.to_string(), "ops", 9).unwrap();
    catalogue.put_grain(&wordy).unwrap();
    assert_eq!(names(&catalogue), [("wordy".to_owned(), 9)]);
}

#[test]
fn the_newest_of_many_definitions_of_one_name_is_the_first_that_is_found() {
    let store = Store::new();
    let db = sled::Config::new().temporary(true).open().unwrap();
    let catalogue = Catalogue::open(store.path(), db.open_tree("catalogue").unwrap()).unwrap();
    for time in 0..300 {
        catalogue.put_grain(&definition("work", time)).unwrap();
    }
    assert_eq!(catalogue.newest_definition("ops", "work").unwrap(), Some(definition("work", 299).hash()));
    let page = catalogue.definitions("ops", None, 3).unwrap().unwrap();
    let times: Vec<i64> = page.items.iter().map(|summary| summary.created_at_ms).collect();
    assert_eq!(times, [299, 298, 297]);
}

fn copy_directory(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&target).unwrap();
            copy_directory(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
