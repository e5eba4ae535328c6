"""Renders a conda recipe for Linux, and prints names and versions of its packages.

usage: render.py RECIPE     for a Python with py-rattler-build
"""
import sys

import rattler_build


def main():
    recipe = rattler_build.Stage0Recipe.from_file(sys.argv[1])
    # What conda-forge's own configuration has for these.
    variants = rattler_build.VariantConfig(
        {"c_compiler": ["gcc"], "c_stdlib": ["sysroot"], "rust_compiler": ["rust"]}
    )
    platform = rattler_build.PlatformConfig(target_platform="linux-64")
    for variant in recipe.render(variants, rattler_build.RenderConfig(platform)):
        package = variant.recipe.package
        print(package.name, package.version)


main()
