// Gives its input back.
import { giveBytes } from "./areev";
export { alloc } from "./areev";

export function run(pointer: usize, length: usize): void {
  giveBytes(pointer, length);
}
