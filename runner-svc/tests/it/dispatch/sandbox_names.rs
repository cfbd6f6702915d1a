//! Sandboxes behind one name, whose addresses come and go.

use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
};

use futures::{FutureExt as _, future::BoxFuture};
use runner_core::pinned::Runtime;
use runner_svc::dispatch::{DispatchConfig, Dispatcher, Names, PATIENCE_DEFAULT};

use super::{
    fake_sandbox::{FakeSandbox, completed},
    rig::*,
};

/// What the one name stands for now.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Vec<SocketAddr>>>);

impl Book {
    fn says(&self, sandboxes: &[&FakeSandbox]) {
        let addresses = sandboxes.iter().map(|sandbox| sandbox.url.trim_start_matches("http://").parse().unwrap());
        *self.0.lock().unwrap() = addresses.collect();
    }
}

impl Names for Book {
    fn addresses(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        assert_eq!((host.as_str(), port), ("sandboxes.test", 7420));
        let addresses = self.0.lock().unwrap().clone();
        async move { if addresses.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(addresses) } }.boxed()
    }
}

fn dispatcher_by(book: &Book) -> Dispatcher {
    let sandbox = Some(at(&["http://sandboxes.test:7420"]));
    let config = DispatchConfig { sandbox, patience: PATIENCE_DEFAULT, ..config(Path::new("/nonexistent")) };
    Dispatcher::with_names(config, with_module(), Arc::new(book.clone())).unwrap()
}

#[tokio::test]
async fn a_name_with_several_addresses_is_several_sandboxes_and_they_come_and_go() {
    let all = [
        FakeSandbox::playing([vec![completed("1")]]).await,
        FakeSandbox::playing([vec![completed("1")]]).await,
        FakeSandbox::playing([vec![completed("1")]]).await,
    ];
    let book = Book::default();
    book.says(&[&all[0], &all[1]]);
    let dispatcher = dispatcher_by(&book);
    for _ in 0..4 {
        assert_eq!(output(&send(&dispatcher, code(Runtime::Wasm)).await), "1");
    }
    let starts = |sandbox: &FakeSandbox| sandbox.starts().len();
    let own = usize::from(starts(&all[0]) == 0);
    assert_eq!((starts(&all[own]), starts(&all[1 - own])), (4, 0), "a module keeps its own replica");
    // Its replica goes, and another one comes.
    book.says(&[&all[1 - own], &all[2]]);
    let deadline = tokio::time::Instant::now() + GENEROUS;
    while starts(&all[1 - own]) + starts(&all[2]) == 0 {
        assert!(tokio::time::Instant::now() < deadline, "the name is not looked up again");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert_eq!(output(&send(&dispatcher, code(Runtime::Wasm)).await), "1");
    }
    let before = starts(&all[own]);
    assert_eq!(output(&send(&dispatcher, code(Runtime::Wasm)).await), "1");
    assert_eq!(starts(&all[own]), before, "one that is gone is not asked any more");
}

#[tokio::test]
async fn of_several_addresses_one_that_does_not_answer_is_passed_over() {
    let sandbox = FakeSandbox::playing([vec![completed("1")]]).await;
    let book = Book::default();
    book.says(&[&sandbox]);
    for _ in 0..9 {
        let silent = nobody().await.trim_start_matches("http://").parse().unwrap();
        book.0.lock().unwrap().push(silent);
    }
    let dispatcher = dispatcher_by(&book);
    assert_eq!(output(&send(&dispatcher, code(Runtime::Native)).await), "1");
    book.0.lock().unwrap().clear();
    assert_eq!(output(&send(&dispatcher, code(Runtime::Native)).await), "1", "what is known is used on");
}
