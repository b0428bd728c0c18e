//! Two kernels measured in turn.

use crate::cluster::text;
use crate::{JobCluster, skip};

const IKJ: &str = include_str!("../kernels/ikj.c");
const IJK: &str = "\
void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c)
{
for (int i = 0; i < m; i++)
for (int j = 0; j < n; j++)
for (int p = 0; p < k; p++)
c[i * n + j] += a[i * k + p] * b[p * n + j];
}
";

#[test]
fn the_faster_of_two_kernels_is_told() {
    if skip("the_faster_of_two_kernels_is_told") {
        return;
    }
    let cluster = JobCluster::holding();
    cluster.write("ikj.c", IKJ);
    cluster.write("ijk.c", IJK);
    let compared = cluster
        .command(&["bench", "--compare", "ijk.c", "ikj.c"])
        .output()
        .unwrap();
    let said = text(&compared);
    assert!(compared.status.success(), "{said}");
    assert!(
        said.contains("ikj.c is ") && said.contains(" times as fast as ijk.c"),
        "{said}"
    );
    // The command, and both sources.
    let sources = |file: &str| said.contains(&format!("{file}, sha256 "));
    assert!(
        said.contains("to reproduce:") && sources("ijk.c") && sources("ikj.c"),
        "{said}"
    );
    assert!(said.contains("bench --compare ijk.c ikj.c"), "{said}");
    cluster.write("wrong.c", "void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c) {}");
    let wrong = cluster
        .command(&["bench", "--compare", "ijk.c", "wrong.c"])
        .output()
        .unwrap();
    let said = text(&wrong);
    assert!(
        !wrong.status.success() && said.contains("wrong.c failed: "),
        "{said}"
    );
}
