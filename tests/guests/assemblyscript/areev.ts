// The guest ABI for AssemblyScript: what the host links, and the room that it asks for.

// @ts-ignore: decorator
@external("areev", "emit")
declare function emit(pointer: usize, length: usize): void;
// @ts-ignore: decorator
@external("areev", "fetch")
declare function fetch(pointer: usize, length: usize): i32;

// Room that the host fills: memory of the runtime's own, never given back.
export function alloc(length: usize): usize {
  return heap.alloc(length);
}

// The input as text.
export function text(pointer: usize, length: usize): string {
  return String.UTF8.decodeUnsafe(pointer, length);
}

// Hands a result to the host; the last one counts.
export function give(output: string): void {
  const bytes = String.UTF8.encode(output);
  emit(changetype<usize>(bytes), bytes.byteLength);
}

// Hands bytes to the host as they are.
export function giveBytes(pointer: usize, length: usize): void {
  emit(pointer, length);
}

// One brokered call: the address of a length and so many bytes.
export function call(pointer: usize, length: usize): usize {
  const reply = fetch(pointer, length);
  if (reply <= 0) unreachable();
  return reply;
}
