//! Adds up the cents of an invoice's lines.

const std = @import("std");
const areev = @import("areev.zig");

const Invoice = struct { lines: []const struct { cents: u64 } };

comptime {
    areev.tool(transform);
}

fn transform(input: []const u8) !void {
    const options: std.json.ParseOptions = .{ .ignore_unknown_fields = true };
    const invoice = try std.json.parseFromSliceLeaky(Invoice, areev.allocator, input, options);
    var total: u64 = 0;
    for (invoice.lines) |line| total += line.cents;
    const text = "{{\"total_cents\":{d},\"lines\":{d}}}";
    areev.give(try std.fmt.allocPrint(areev.allocator, text, .{ total, invoice.lines.len }));
}
