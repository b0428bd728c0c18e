//! "Did you mean ...?"

/// The candidate most like `word`, if any is like enough to be a slip of the fingers:
/// Jaro-Winkler similarity of at least 0.8, ties to the first in order.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let mut best: Option<(f64, &str)> = None;
    for candidate in candidates {
        let likeness = strsim::jaro_winkler(word, candidate);
        if likeness >= 0.8 && best.is_none_or(|(b, _)| likeness > b) {
            best = Some((likeness, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// `nearest` as the end of a sentence: "; did you mean `x`?", or nothing.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> String {
    nearest(word, candidates).map_or_else(String::new, |c| format!("; did you mean `{c}`?"))
}

/// Up to three candidates that are like `word`, the most like first, as the end of a sentence: "; there are `x`, `y`", or
/// nothing.
pub(crate) fn near_ones<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let mut near: Vec<(f64, &str)> = candidates
        .into_iter()
        .map(|c| (strsim::jaro_winkler(word, c), c))
        .filter(|(likeness, _)| *likeness >= 0.7)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.dedup_by_key(|(_, c)| *c);
    let names: Vec<String> = near.iter().take(3).map(|(_, c)| format!("`{c}`")).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        several => format!("; names like it are {}", several.join(", ")),
    }
}
