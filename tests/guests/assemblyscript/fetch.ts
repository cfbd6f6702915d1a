// Makes the call that its input describes, and gives the answer or why there is none.
import { call, giveBytes } from "./areev";
export { alloc } from "./areev";

export function run(pointer: usize, length: usize): void {
  const reply = call(pointer, length);
  giveBytes(reply + 4, load<u32>(reply));
}
