//! A pass that waits for a disk gives its lanes back, and others have them meanwhile.

use crate::check;
use expect_test::expect;

/// B is a person's: while A waits, B goes first, and A has what B leaves.
#[test]
fn others_have_the_lanes_of_a_pass_that_waits() {
    check(
        "mixture  preempt 4ms
         at 0ms  A  proactive  prompt 20  output 2
         at 1ms  B  reactive   prompt 20  output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..20] n0..3                 0.52  background
            0.52      cpu0+cpu1  prefill  A[0..20] n3..4 r0..16          2.01  goes on
            0.52                 waits    A n3 for 7.06
            1.00                 arrive   B reactive
            1.00      cpu0+cpu1  prefill  B[0..20]                       5.26  reactive first
            1.52                 waits    B n3 for 3.72
            5.24                 read     B
            5.24      cpu0+cpu1  prefill  B[0..20] n3..7                 4.74  goes on
            5.24                 waits    B n3 for 3.72
            7.58                 read     A
            7.58                 wait     until 9.27                           the disk is late
            8.97                 read     B
            8.97      cpu0+cpu1  prefill  B[0..20] n3..7                 4.74  goes on
            11.60                waits    B n6 for 7.45
            11.60     cpu0+cpu1  prefill  A[0..20] n3..4 r0..16          2.01  resumes
            13.61     cpu0+cpu1  prefill  A[0..20] n3..4 r16..20         1.08  goes on
            13.61                waits    A n3 for 3.31
            16.92                read     A
            16.92     cpu0+cpu1  prefill  A[0..20] n3..4 r16..20         1.08  goes on
            18.00     cpu0+cpu1  prefill  A[0..20] n4..6                 0.52  goes on
            18.52     cpu0+cpu1  prefill  A[0..20] n6..7 r0..16          2.01  goes on
            19.04                read     B
            20.53     cpu0+cpu1  prefill  B[0..20] n6..7                 2.11  goes on
            22.65     cpu0+cpu1  decode   B[20]                          2.04  reactive first
            23.17                waits    B n3 for 1.00
            23.17                wait     until 25.32                          the disk is late
            24.17                read     B
            24.17     cpu0+cpu1  decode   B[20] n3..7                    1.52  goes on
            25.19                waits    B n6 for 1.00
            25.32                wait     until 27.34                          the disk is late
            26.19                read     B
            26.19     cpu0+cpu1  decode   B[20] n6..7                    0.50  goes on
            26.69                end      B stop
            26.69     cpu0+cpu1  prefill  A[0..20] n6..7 r16..20         1.08  resumes
            27.77     cpu0+cpu1  decode   A[20] n0..3                    0.52  background
            28.29     cpu0+cpu1  decode   A[20] n3..5                    2.00  goes on
            30.29     cpu0+cpu1  decode   A[20] n5..7                    1.52  goes on
            31.81                end      A stop
        "#]],
    );
}

/// Each keeps the lanes that it waits with.
#[test]
fn others_have_the_lanes_of_a_pass_that_waits_switched_off() {
    check(
        "mixture  preempt 4ms  without give-back
         at 0ms  A  proactive  prompt 20  output 2
         at 1ms  B  reactive   prompt 20  output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00      cpu0+cpu1  prefill  A[0..20] n0..3                 0.52  background
            0.52      cpu0+cpu1  prefill  A[0..20] n3..4 r0..16          9.07  goes on
            1.00                 arrive   B reactive
            9.59      cpu0+cpu1  prefill  B[0..20]                      20.16  reactive first
            29.75     cpu0+cpu1  decode   B[20]                          4.04  reactive first
            33.79                end      B stop
            33.79     cpu0+cpu1  prefill  A[0..20] n3..4 r16..20         4.39  resumes
            38.18     cpu0+cpu1  prefill  A[0..20] n4..6                 0.52  goes on
            38.70     cpu0+cpu1  prefill  A[0..20] n6..7 r0..16          9.07  goes on
            47.76     cpu0+cpu1  prefill  A[0..20] n6..7 r16..20         4.39  goes on
            52.15     cpu0+cpu1  decode   A[20] n0..3                    0.52  background
            52.67     cpu0+cpu1  decode   A[20] n3..5                    2.00  goes on
            54.67     cpu0+cpu1  decode   A[20] n5..7                    1.52  goes on
            56.19                end      A stop
        "#]],
    );
}

/// Nobody else could have the lanes: what is there is computed while the rest comes.
#[test]
fn alone_a_pass_keeps_its_lanes() {
    check(
        "mixture  preempt 40ms
         at 0ms  A  reactive  prompt 20  output 2",
        expect![[r#"
            0.00                 arrive   A reactive
            0.00      cpu0+cpu1  prefill  A[0..20]                      20.16  reactive first
            20.16     cpu0+cpu1  decode   A[20]                          4.04  reactive first
            24.20                end      A stop
        "#]],
    );
}

/// What a person waits for comes in 1 ms: nothing of A's that takes longer goes in between.
#[test]
fn what_goes_in_between_is_over_when_the_data_is_there() {
    check(
        "mixture  preempt 4ms
         at 0ms  A  proactive  prompt 100  output 1
         at 0ms  B  reactive   prompt 1    output 2",
        expect![[r#"
            0.00                 arrive   A proactive
            0.00                 arrive   B reactive
            0.00      cpu0+cpu1  prefill  A[0..100] n0..2                1.00  background
            1.00      cpu0+cpu1  prefill  B[0]                           2.00  reactive first
            1.50                 waits    B n3 for 0.50
            1.50      cpu0+cpu1  prefill  A[0..100] n2..3                0.10  resumes
            1.60                 wait     until 5.53                           the disk is late
            2.00                 read     B
            2.00      cpu0+cpu1  prefill  B[0] n3..7                     1.50  goes on
            2.00                 waits    B n3 for 0.50
            2.50                 read     B
            2.50      cpu0+cpu1  prefill  B[0] n3..7                     1.50  goes on
            3.50                 waits    B n6 for 1.00
            4.50                 read     B
            4.50      cpu0+cpu1  prefill  B[0] n6..7                     0.50  goes on
            5.00      cpu0+cpu1  decode   B[1]                           2.00  reactive first
            5.50                 waits    B n3 for 1.00
            5.53                 wait     until 9.53                           the disk is late
            6.50                 read     B
            6.50      cpu0+cpu1  decode   B[1] n3..7                     1.50  goes on
            7.51                 waits    B n6 for 1.00
            8.51                 read     B
            8.51      cpu0+cpu1  decode   B[1] n6..7                     0.50  goes on
            9.01                 end      B stop
            9.01      cpu0+cpu1  prefill  A[0..100] n3..4 r0..16         2.01  resumes
            9.01                 waits    A n3 for 7.06
            16.06                read     A
            16.06     cpu0+cpu1  prefill  A[0..100] n3..4 r0..16         2.01  goes on
            18.08     cpu0+cpu1  prefill  A[0..100] n3..4 r16..32        2.01  goes on
            18.08                waits    A n3 for 7.06
            25.13                read     A
            25.13     cpu0+cpu1  prefill  A[0..100] n3..4 r16..32        2.01  goes on
            27.14     cpu0+cpu1  prefill  A[0..100] n3..4 r32..48        2.01  goes on
            27.14                waits    A n3 for 7.06
            34.20                read     A
            34.20     cpu0+cpu1  prefill  A[0..100] n3..4 r32..48        2.01  goes on
            36.21     cpu0+cpu1  prefill  A[0..100] n3..4 r48..64        2.01  goes on
            36.21                waits    A n3 for 7.06
            43.27                read     A
            43.27     cpu0+cpu1  prefill  A[0..100] n3..4 r48..64        2.01  goes on
            45.28     cpu0+cpu1  prefill  A[0..100] n3..4 r64..80        2.01  goes on
            45.28                waits    A n3 for 7.06
            52.34                read     A
            52.34     cpu0+cpu1  prefill  A[0..100] n3..4 r64..80        2.01  goes on
            54.35     cpu0+cpu1  prefill  A[0..100] n3..4 r80..96        2.01  goes on
            54.35                waits    A n3 for 7.06
            61.41                read     A
            61.41     cpu0+cpu1  prefill  A[0..100] n3..4 r80..96        2.01  goes on
            63.42     cpu0+cpu1  prefill  A[0..100] n3..4 r96..100       1.08  goes on
            63.42                waits    A n3 for 3.31
            66.73                read     A
            66.73     cpu0+cpu1  prefill  A[0..100] n3..4 r96..100       1.08  goes on
            67.81     cpu0+cpu1  prefill  A[0..100] n4..6                1.10  goes on
            68.91     cpu0+cpu1  prefill  A[0..100] n6..7 r0..16         2.01  goes on
            70.92     cpu0+cpu1  prefill  A[0..100] n6..7 r16..32        2.01  goes on
            72.94     cpu0+cpu1  prefill  A[0..100] n6..7 r32..48        2.01  goes on
            74.95     cpu0+cpu1  prefill  A[0..100] n6..7 r48..64        2.01  goes on
            76.97     cpu0+cpu1  prefill  A[0..100] n6..7 r64..80        2.01  goes on
            78.98     cpu0+cpu1  prefill  A[0..100] n6..7 r80..96        2.01  goes on
            80.99     cpu0+cpu1  prefill  A[0..100] n6..7 r96..100       1.08  goes on
            82.07                end      A stop
        "#]],
    );
}
