//! `cargo xtask bench capture`: what a frame of the display that `DISPLAY` names costs.
//!
//! Prints `figure NAME VALUE UNIT` lines with medians in milliseconds: `capture` (the whole desktop
//! into memory), `jpeg` and `png` (the same frame encoded as `native-jpeg` and `native-png`), then
//! figures for people.

use std::hint::black_box;
use std::time::{Duration, Instant};

use wingman::base::Rect;
use wingman::desktop::{Desktop, Profile, encode, pixels};
use wingman::platform::{Cursor, Frame, OpenOptions};
use wingman::vision::{SCORE_DEFAULT, Template, find_image};

const WARM_UP: usize = 5;

/// The median time of `work` over `rounds`, after a warm-up.
fn median(rounds: usize, mut work: impl FnMut()) -> Duration {
    for _ in 0..WARM_UP {
        work();
    }
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn figure(name: &str, time: Duration) {
    println!("figure {name} {:.3} ms", time.as_secs_f64() * 1e3);
}

fn grab(desktop: &Desktop, region: Option<Rect>) -> Frame {
    desktop
        .frame(region, Cursor::Hidden)
        .expect("a frame of the display")
}

fn encoded(frame: &Frame, profile: &str) -> usize {
    let profile = Profile::named(profile).expect("a profile");
    encode(frame, &profile)
        .expect("an encoded frame")
        .bytes
        .len()
}

fn main() {
    let desktop = Desktop::open(&OpenOptions::default());
    let frame = grab(&desktop, None);
    let size = frame.size();
    println!("{}x{} by {}", size.width, size.height, frame.backend);
    figure(
        "capture",
        median(200, || drop(black_box(grab(&desktop, None)))),
    );
    for (name, profile, rounds) in [
        ("jpeg", "native-jpeg", 40),
        ("png", "native-png", 40),
        ("jpeg_1080p", "1080p-jpeg", 20),
        ("jpeg_dashboard", "dashboard-jpeg", 20),
    ] {
        figure(
            name,
            median(rounds, || {
                black_box(encoded(&frame, profile));
            }),
        );
        println!("{profile}: {} bytes", encoded(&frame, profile));
    }
    let pixel = Some(Rect::new(1, 1, 1, 1));
    figure(
        "capture_pixel",
        median(200, || drop(black_box(grab(&desktop, pixel)))),
    );
    let searched = pixels(&frame).expect("pixels");
    let part = Rect::new(size.width as i32 / 2, size.height as i32 / 2, 64, 48);
    if let Some(part) = searched.crop(part) {
        let template = Template::of(&part);
        figure(
            "find_image",
            median(5, || {
                black_box(find_image(&searched, &template, SCORE_DEFAULT));
            }),
        );
    }
}
