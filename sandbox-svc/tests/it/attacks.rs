//! Everything hostile that a module can do as it runs, in one list: what each is, and how it must end.

use proto::sandbox::v1::{OutcomeKind, Runtime};

use crate::guests;

const PURE: Runtime = Runtime::Wasm32Areev;
const IO: Runtime = Runtime::Wasm32AreevIo;
const TABLE: &str = "(table $t 9000 10000 funcref)";
const ECHO: &str = "(call $emit (local.get $p) (local.get $n))";

/// One way to do harm.
pub struct Attack {
    pub name: &'static str,
    pub runtime: Runtime,
    pub module: Vec<u8>,
    /// How it may end.
    pub ends: &'static [OutcomeKind],
}

/// All of them, in the order of the cases that their names begin with.
pub fn all() -> Vec<Attack> {
    use OutcomeKind::{
        Abi, BadOutput, Completed, ModuleRefused, OutOfFuel, OutOfMemory, OutputTooLarge, Timeout, Trap,
    };
    const BOUNDED: &[OutcomeKind] = &[OutOfFuel, Timeout];
    let fetching = guests::fetches(&["{\"url\":\"https://x\"}"]);
    let calling = r#"(import "areev" "fetch" (func $fetch (param i32 i32) (result i32)))"#;
    let begin = |body: &str| guests::guest("", &format!("(func $begin {body}) (start $begin)"), ECHO);
    let looping = |body: &str| guests::guest("", TABLE, &format!("(loop $again {body} (br $again))"));
    let fill = "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
        (memory.fill (i32.const 0) (i32.const 49) (i32.mul (memory.size) (i32.const 65536)))";
    let nested = guests::io("", "")
        .replace("(local.get $p))", "(drop (call $fetch (i32.const 0) (i32.const 9))) (local.get $p))");
    let mut attacks = vec![
        attack("w01 an import that is not linked", PURE, &fetching, &[Abi]),
        attack("w01 an import of the system", IO, &guests::guest(r#"(import "env" "abort" (func))"#, "", ""), &[Abi]),
        attack("w03 a start function without end", PURE, &begin("(loop $again (br $again))"), BOUNDED),
        attack("w03 a start function that traps", PURE, &begin("unreachable"), &[Trap]),
        attack(
            "w03 a start function that calls out",
            IO,
            &guests::guest(
                calling,
                "(func $begin (drop (call $fetch (i32.const 0) (i32.const 1)))) (start $begin)",
                ECHO,
            ),
            &[Abi],
        ),
        attack("w04 a loop without end", PURE, &guests::endless(), BOUNDED),
        attack(
            "w04 a call in a loop without end",
            IO,
            &guests::io("", "(loop $again (drop (call $fetch (i32.const 0) (i32.const 9))) (br $again))"),
            BOUNDED,
        ),
    ];
    for (name, body) in [
        ("w05 large fills", "(memory.fill (i32.const 0) (i32.const 1) (i32.const 262144))"),
        ("w05 large copies", "(memory.copy (i32.const 0) (i32.const 1) (i32.const 262143))"),
        ("w05 fills of a table", "(table.fill $t (i32.const 0) (ref.null func) (i32.const 9000))"),
        ("w05 fills of nothing", "(memory.fill (i32.const 0) (i32.const 1) (i32.const 0))"),
        ("w05 growth that fails", "(drop (memory.grow (i32.const 65536)))"),
        ("w05 a table that grows by nothing", "(drop (table.grow $t (ref.null func) (i32.const 0)))"),
        ("w05 a table that grows for ever", "(drop (table.grow $t (ref.null func) (i32.const 100)))"),
        ("w06 a memory that grows for ever", "(drop (memory.grow (i32.const 1)))"),
        ("w11 outputs without end", "(call $emit (i32.const 0) (i32.const 262144))"),
    ] {
        attacks.push(attack(name, PURE, &looping(body), BOUNDED));
    }
    let outside = guests::pure("(memory.fill (i32.const 262143) (i32.const 1) (i32.const 2))");
    let range = |range: &str| guests::io("", &format!("(drop (call $fetch {range})) {ECHO}"));
    let deep =
        "(memory.fill (i32.const 0) (i32.const 91) (i32.const 2000)) (call $emit (i32.const 0) (i32.const 2000))";
    attacks.extend([
        attack("w05 a fill that leaves the memory", PURE, &outside, &[Trap]),
        attack("w06 a second memory", PURE, &guests::guest("", "(memory 100)", ""), &[ModuleRefused]),
        attack("w06 1 GiB at the start", PURE, "(module (memory (export \"memory\") 16384))", &[ModuleRefused]),
        attack("w06 all of a 32-bit memory", PURE, "(module (memory (export \"memory\") 65536))", &[ModuleRefused]),
        attack(
            "w06 more than this call may have",
            PURE,
            &guests::guest("", "", "").replace("\"memory\") 4", "\"memory\") 300"),
            &[OutOfMemory],
        ),
        attack("w06 a shared memory", PURE, "(module (memory 1 1 shared))", &[ModuleRefused]),
        attack("w06 a start function that takes all", PURE, &begin(fill), &[Completed]),
        attack(
            "w06 all memory filled, again and again",
            PURE,
            &guests::pure(&format!("(loop $again {fill} (br $again))")),
            BOUNDED,
        ),
        attack("w07 200 million elements", PURE, &guests::guest("", "(table 200000000 funcref)", ""), &[ModuleRefused]),
        attack(
            "w07 a hundred tables",
            PURE,
            &guests::guest("", &"(table 1 funcref)".repeat(100), ""),
            &[ModuleRefused],
        ),
        attack(
            "w08 a recursion without end",
            PURE,
            &guests::guest("", "(func $f (call $f) (call $f))", "(call $f)"),
            &[Trap],
        ),
        attack("w08 a recursion of large frames", PURE, &guests::recursing_in_large_frames(), &[Trap]),
        attack("w08 an alloc that calls out", IO, &nested, &[BadOutput]),
        attack("w09 a range of all the address space", IO, &range("(i32.const 0) (i32.const -1)"), &[Completed]),
        attack("w09 a range that wraps", IO, &range("(i32.const -1) (i32.const 2)"), &[Completed]),
        attack("w09 no exports", PURE, "(module)", &[Abi]),
        attack("w11 no output", PURE, &guests::pure(""), &[BadOutput]),
        attack("w11 an output that is not JSON", PURE, &guests::says("NaN"), &[BadOutput]),
        attack("w11 an output of deep nesting", PURE, &guests::pure(deep), &[BadOutput]),
        attack("w11 the greatest output", PURE, &greatest(8_388_608), &[Completed]),
        attack("w11 an output of a byte too many", PURE, &greatest(8_388_609), &[OutputTooLarge]),
        attack("w18 floats", PURE, &guests::floats(), &[Completed]),
        attack(
            "w19 a division by zero",
            PURE,
            &guests::pure("(drop (i32.div_s (i32.const 1) (i32.const 0)))"),
            &[Trap],
        ),
        attack("w19 a call of nothing", PURE, &guests::guest("", TABLE, "(call_indirect $t (i32.const 1))"), &[Trap]),
    ]);
    for (name, bytes) in
        [("w13 no bytes", &b""[..]), ("w13 another format", b"\x7fELF\x02\x01"), ("w13 cut off", b"\0asm")]
    {
        attacks.push(Attack { name, runtime: PURE, module: bytes.to_vec(), ends: &[ModuleRefused] });
    }
    attacks
}

fn attack(name: &'static str, runtime: Runtime, wat: &str, ends: &'static [OutcomeKind]) -> Attack {
    Attack { name, runtime, module: wat::parse_str(wat).unwrap(), ends }
}

/// One JSON text of so many bytes: the digits of a number in quotes.
fn greatest(bytes: u32) -> String {
    let last = bytes - 1;
    guests::pure(&format!(
        "(drop (memory.grow (i32.const 130))) (memory.fill (i32.const 0) (i32.const 49) (i32.const {bytes}))
         (i32.store8 (i32.const 0) (i32.const 34)) (i32.store8 (i32.const {last}) (i32.const 34))
         (call $emit (i32.const 0) (i32.const {bytes}))"
    ))
}
