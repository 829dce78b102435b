"""What `cargo xtask bench capture` measures Wingman against: mss for the grab, OpenCV for the
encoding, on the same display in the same minute.

Prints `figure NAME MILLISECONDS ms`, the median, under the names that benches/capture.rs uses.
"""

import statistics
import sys
import time

import cv2
import mss
import numpy


def median_ms(work, rounds):
    """The median time of `work` in milliseconds, after a warm-up."""
    for _ in range(5):
        work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


def encode(extension, pixels, options):
    done, _ = cv2.imencode(extension, pixels, options)
    if not done:
        sys.exit(f"OpenCV did not encode {extension}")


def main():
    with mss.MSS() as screen:
        monitor = screen.monitors[0]
        shot = screen.grab(monitor)
        pixels = numpy.ascontiguousarray(numpy.array(shot)[:, :, :3])
        jpeg = [cv2.IMWRITE_JPEG_QUALITY, 90]
        sampling = getattr(cv2, "IMWRITE_JPEG_SAMPLING_FACTOR", None)
        if sampling is not None:
            jpeg += [sampling, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]
        png = [cv2.IMWRITE_PNG_COMPRESSION, 1]

        figures = {
            "capture": median_ms(lambda: screen.grab(monitor), 200),
            "jpeg": median_ms(lambda: encode(".jpg", pixels, jpeg), 40),
            "png": median_ms(lambda: encode(".png", pixels, png), 20),
        }
    for name, value in figures.items():
        print(f"figure {name} {value:.3f} ms")


main()
