# Packages that users install; scripts/check-packages deb, by hand, takes longer. (sourced by scripts/test)
step 300 "packages: tar and wheel, made twice, installed, run and uninstalled" scripts/leaves-nothing \
    scripts/check-packages tar wheel
