//! Fuel: how much a module used is counted and journaled, and is in no record that is named by its content. Another release of the
//! engine may count differently; what a run made has the same addresses then.

use e2e::{document::Definition, guests, search, stack::Stack};
use proto::runner::v1::{GetGrainRequest, RunStatus};
use serde_json::{Value, json};

/// A number as a grain spells it, and as a text does.
fn spellings(number: u64) -> Vec<Vec<u8>> {
    let short = u32::try_from(number).unwrap().to_be_bytes();
    vec![
        number.to_string().into_bytes(),
        [&[0xce][..], &short].concat(),
        [&[0xcf][..], &number.to_be_bytes()].concat(),
        [&[0xca][..], &(number as f32).to_be_bytes()].concat(),
        [&[0xcb][..], &(number as f64).to_be_bytes()].concat(),
    ]
}

#[tokio::test]
async fn w20_the_fuel_that_a_module_used_is_counted_and_is_in_no_record_that_is_named_by_its_content() {
    let module = guests::sum();
    let stack = Stack::builder().unwrap().pin(&module).sandbox().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let definition = Definition::pure("work", &uri);
    let plan = client.put_work(&definition).await.unwrap();
    let lines: Vec<Value> = (0..3_000).map(|cents| json!({"cents": cents})).collect();
    let run = client.run("r1", &plan, &json!({"lines": lines})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let fuel = run.spent.unwrap().fuel;
    assert!(fuel > 65_536, "{fuel} is too small a number to be looked for");

    let steps = client.step_actions(&plan).await.unwrap();
    let manifest = client.manifest("r1").await.unwrap();
    let definitions = manifest.nodes.iter().map(|node| node.definition_hash.clone());
    let hashes = [plan, definition_hash(&definition)].into_iter().chain(definitions);
    let mut records = vec![manifest.manifest_json.into_bytes(), run.output_json.into_bytes()];
    for grain_hash in hashes.chain(steps.iter().map(|step| step.grain_hash.clone())) {
        let grain = client.catalog().get_grain(GetGrainRequest { grain_hash }).await.unwrap().into_inner();
        records.extend([grain.grain, grain.fields_json.into_bytes()]);
    }
    assert!(steps.len() == 1 && records.len() >= 8, "{steps:?}");
    let needles = spellings(fuel);
    for record in records {
        assert!(!search::holds_any(&record, &needles), "{fuel} in {}", record.escape_ascii());
    }
    let journaled = client.entries("r1").await.unwrap();
    assert_eq!(journaled.len(), 1);
    assert!(client.verify("r1").await.unwrap().clean);
}

fn definition_hash(definition: &Definition) -> String {
    content_digest::Digest::of(definition.grain()).to_hex()
}
