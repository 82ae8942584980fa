//! The order of a merged list: what the patch names stands in the patch's order, the rest keeps the server's.

use serde_json::Value;

use super::strategic::ListMerge;

/// Puts the items of a merged list in order; `wanted` are items, keys or values of the patch, `before` is the list as
/// it was.
pub(super) fn arrange(items: &mut Vec<Value>, wanted: &[Value], before: &[Value], list: ListMerge) {
    let place =
        |order: &[Value], item: &Value| order.iter().position(|other| same(other, item, list));
    let (mut named, rest): (Vec<Value>, Vec<Value>) = std::mem::take(items)
        .into_iter()
        .partition(|item| place(wanted, item).is_some());
    named.sort_by_key(|item| place(wanted, item));
    let (mut named, mut rest) = (named.into_iter().peekable(), rest.into_iter().peekable());
    loop {
        let first_of_rest = match (rest.peek(), named.peek()) {
            (None, None) => return,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            // What the server did not know yet goes in front.
            (Some(left), Some(right)) => {
                matches!((place(before, left), place(before, right)), (Some(left), Some(right)) if left < right)
            }
        };
        items.extend(if first_of_rest {
            rest.next()
        } else {
            named.next()
        });
    }
}

fn same(left: &Value, right: &Value, list: ListMerge) -> bool {
    match list {
        ListMerge::ByKey(key) => left.get(key).is_some() && left.get(key) == right.get(key),
        ListMerge::Set | ListMerge::Atomic => left == right,
    }
}
