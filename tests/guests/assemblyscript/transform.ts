// Adds up the cents of an invoice's lines.
import { give, text } from "./areev";
export { alloc } from "./areev";

const KEY = '"cents":';

export function run(pointer: usize, length: usize): void {
  const invoice = text(pointer, length);
  let total: u64 = 0;
  let lines: u64 = 0;
  let at = invoice.indexOf(KEY);
  while (at >= 0) {
    at += KEY.length;
    let cents: u64 = 0;
    while (at < invoice.length && invoice.charCodeAt(at) >= 0x30 && invoice.charCodeAt(at) <= 0x39) {
      cents = cents * 10 + (invoice.charCodeAt(at) - 0x30);
      at += 1;
    }
    total += cents;
    lines += 1;
    at = invoice.indexOf(KEY, at);
  }
  give('{"total_cents":' + total.toString() + ',"lines":' + lines.toString() + "}");
}
